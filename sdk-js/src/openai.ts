/**
 * Types for the gateway's fields on the objects of the `openai` package. If you import this module once, requests may
 * have `documents` and `grounding`, and replies, chunks and responses have `grounding`. Nothing changes at run time.
 */
import type {} from "openai/resources/chat/completions/completions";
import type {} from "openai/resources/responses/responses";
import { violationIn, type PolicyViolationError } from "./errors.js";
import type { Claim, Grounding, GroundingOptions, PieceGrounding, SourceDocument } from "./types.js";

interface RequestFields {
  /** The documents that the reply must be grounded in. */
  documents?: (string | SourceDocument)[];
  grounding?: GroundingOptions;
}

declare module "openai/resources/chat/completions/completions" {
  interface ChatCompletionCreateParamsBase extends RequestFields {}
  interface ChatCompletion {
    /** The findings; missing if nothing was checked. */
    grounding?: Grounding;
  }
  interface ChatCompletionChunk {
    /** The findings on the sentences in this chunk or, in the last chunk, on the whole reply. */
    grounding?: Grounding | PieceGrounding;
  }
}

declare module "openai/resources/responses/responses" {
  interface ResponseCreateParamsBase extends RequestFields {}
  interface Response {
    /** The findings; missing if nothing was checked. */
    grounding?: Grounding;
  }
  interface ResponseTextDeltaEvent {
    /** The findings on the sentences in this piece. */
    grounding?: PieceGrounding;
  }
}

/** The findings on the whole reply in a reply, its last chunk or its last event; undefined for any other object. */
export function groundingOf(item: unknown): Grounding | undefined {
  const found = findings(item);
  return found && "verdict" in found ? (found as Grounding) : undefined;
}

/** The claims in an `openai` object: in a chunk or event, or in the whole reply. */
export function claimsOf(item: unknown): Claim[] {
  return findings(item)?.claims ?? [];
}

/** The policy violation in an error of the `openai` package or in a response's `error` event; undefined if none. */
export function violationOf(error: unknown): PolicyViolationError | undefined {
  const { error: body, requestID } = (error ?? {}) as { error?: unknown; requestID?: string | null };
  return violationIn(body ?? error, requestID ?? null);
}

function findings(item: unknown): Grounding | PieceGrounding | undefined {
  const { grounding, response } = (item ?? {}) as { grounding?: Grounding; response?: { grounding?: Grounding } };
  return grounding ?? response?.grounding ?? undefined;
}
