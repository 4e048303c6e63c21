import type { Decision } from "./types.js";

/** Base class of the errors of this package. */
export class GroundlaneError extends Error {
  override name = "GroundlaneError";
}

/** No response: no connection, a lost connection, or a timeout. The gateway may have handled the request. */
export class GatewayUnreachableError extends GroundlaneError {
  override name = "GatewayUnreachableError";
}

/** The gateway returned an error. `code` and `param` (the invalid field) come from the response, if it has them. */
export class GatewayStatusError extends GroundlaneError {
  override name = "GatewayStatusError";

  constructor(
    message: string,
    readonly status: number,
    readonly code: string | null = null,
    readonly param: string | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

/**
 * A policy blocked the request or the run. The message is the reason. `decisions` contains all decisions, not only the
 * blocking ones. `code` is the reason code of the first blocking decision, and `param` is the item that this decision
 * is about. `abstentionResponse` is the policy's text to show the user instead, if any.
 */
export class PolicyViolationError extends GroundlaneError {
  override name = "PolicyViolationError";

  constructor(
    message: string,
    readonly decisions: readonly Decision[],
    readonly code: string | null = null,
    readonly param: string | null = null,
    readonly abstentionResponse: string | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

const VIOLATIONS = new Set(["retrieval_policy_violation", "grounding_policy_violation"]);

interface ErrorBody {
  message?: string;
  type?: string;
  code?: string | null;
  param?: string | null;
  violations?: Decision[];
}

/** The violation that the `error` object in a response describes; undefined if the error isn't a policy violation. */
export function violationIn(error: unknown, requestId: string | null = null): PolicyViolationError | undefined {
  const body = (error ?? {}) as ErrorBody;
  // An `error` event of a response has only the code.
  if (!VIOLATIONS.has(body.type ?? "") && !/^(RETRIEVAL|GROUNDING)_/.test(body.code ?? "")) return undefined;
  const { message = "A policy blocked the request.", violations = [], code = null, param = null } = body;
  return new PolicyViolationError(message, violations, code, param, null, requestId);
}

/** The error for a response with `status` and the decoded `body`. */
export function errorFrom(status: number, body: unknown, requestId: string | null): GroundlaneError {
  const error = ((body ?? {}) as { error?: ErrorBody }).error;
  const message = error?.message ?? `The gateway returned status ${status}.`;
  return (
    violationIn(error, requestId) ??
    new GatewayStatusError(message, status, error?.code ?? null, error?.param ?? null, requestId)
  );
}
