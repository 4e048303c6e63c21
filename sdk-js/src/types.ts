/** The gateway's requests and responses, as sent over HTTP. Newer gateways may return additional fields. */

export type ClaimVerdict = "supported" | "contradicted" | "unverifiable";
export type ReplyVerdict =
  | "supported"
  | "has_contradictions"
  | "has_unverifiable"
  | "no_claims"
  | "no_sources"
  | "not_checked";
export type Action = "allow" | "warn" | "drop" | "block";
export type Phase = "before_workflow" | "mid_execution" | "after_workflow";

/** A half-open range `[start, end)` in Unicode code points, not in UTF-16 code units like JavaScript's indices. */
export interface Span {
  start: number;
  end: number;
}

/** The passage that decided the verdict on a claim. `span` is its position in the document. */
export interface EvidencePassage {
  document_id: string;
  source: string | null;
  content: string;
  score: number | null;
  span: Span | null;
}

/**
 * A claim in a reply, with its verdict. `confidence` is the probability of the verdict, and `score` is the probability
 * that the claim is supported; both are 0 to 1. If a policy withheld the claim, `claim` is null and `delivered` is
 * false. `spans` are the parts that no document supports, if the judge reports them. `reason` says why there is no
 * better verdict.
 */
export interface Claim {
  claim: string | null;
  verdict: ClaimVerdict;
  score: number | null;
  confidence: number | null;
  span: Span | null;
  best_source: EvidencePassage | null;
  citations: string[];
  escalated: boolean;
  explanation: string | null;
  correction: string | null;
  reason?: string | null;
  spans?: (Span & { score: number | null })[] | null;
  delivered?: boolean;
  choice?: number | null;
  output_index?: number | null;
  content_index?: number | null;
}

/** A policy's decision and its reason. */
export interface Decision {
  policy_id: string;
  policy_version: number;
  policy_name: string;
  category: string;
  phase: Phase;
  action: Action;
  reason: string;
  reason_code: string | null;
  metadata: Record<string, unknown>;
  latency_ms: number;
}

/** A document of a request. `reason` says why it was dropped. */
export interface UsedDocument {
  index: number;
  id: string;
  source: string | null;
  relevance_score: number | null;
  age_days: number | null;
  reason?: string | null;
}

export interface Retrieval {
  kept: UsedDocument[];
  dropped: UsedDocument[];
  warnings: string[];
}

/** The calls to an LLM judge, or to a judge that is a service. `cost_usd` is null if a price is unknown. */
export interface LlmUsage {
  models: string[];
  calls: number;
  failed: number;
  prompt_tokens: number;
  completion_tokens: number;
  cost_usd: number | null;
  latency_ms: number;
}

export interface Judge {
  name: string | null;
  latency_ms: number | null;
  llm?: LlmUsage | null;
}

/** Text that was not judged. `kind` says why. */
export interface UnjudgedPart extends Span {
  kind: string;
}

/** The findings on a whole reply. `trust_score` is the ratio of supported claims, 0 to 1. */
export interface Grounding {
  request_id: string;
  action: Action;
  verdict: ReplyVerdict;
  trust_score: number | null;
  is_trusted: boolean;
  total_claims: number;
  supported_count: number;
  contradicted_count: number;
  unverifiable_count: number;
  unverifiable_ratio: number | null;
  coverage: number | null;
  summary: string;
  judge: Judge;
  claims?: Claim[] | null;
  decisions?: Decision[] | null;
  retrieval?: Retrieval | null;
  unjudged?: UnjudgedPart[] | null;
  final_because?: string[] | null;
  claims_skipped?: number | null;
  stripped_count?: number | null;
  corrected_count?: number | null;
  regenerations?: number | null;
  not_regenerated?: string | null;
  not_checked?: string[] | null;
}

/** The findings on the sentences in one piece of a stream. */
export interface PieceGrounding {
  claims: Claim[];
  verdict?: never;
}

/** A document for a request or a run. `relevance_score` is 0 to 1. Give the age as `age_days` or `updated_at`. */
export interface SourceDocument {
  id?: string | number;
  text?: string;
  source?: string;
  collection?: string;
  relevance_score?: number;
  age_days?: number;
  updated_at?: string;
  title?: string;
  url?: string;
  metadata?: Record<string, unknown>;
}

/** The results of the caller's own checks. Scores are 0 to 1. */
export interface Reported {
  grounding_scores?: number[];
  citations?: string[];
  unsupported_claims?: string[];
  output_confidence?: number;
}

/** The `grounding` field of a request. */
export interface GroundingOptions {
  agent?: string;
  run_id?: string;
  query?: string;
  inject?: "none" | "system" | "user";
  include?: ("claims" | "decisions" | "documents")[];
  reported?: Reported;
}

/** A claim in a checked text. `corrected` is the claim with `correction` marked in it. */
export interface CheckedClaim {
  claim: string;
  verdict: ClaimVerdict;
  confidence: number | null;
  best_source: { chunk_id: string; content: string; score: number | null } | null;
  escalated: boolean;
  span: Span;
  reason?: string | null;
  explanation?: string | null;
  correction?: string | null;
  corrected?: string | null;
  spans?: (Span & { score: number | null })[] | null;
}

/** The result of a check. */
export interface CheckReport {
  grounded: boolean;
  verdict: ReplyVerdict;
  claims: CheckedClaim[];
  total_claims: number;
  supported_count: number;
  contradicted_count: number;
  unverifiable_count: number;
  unverifiable_ratio: number | null;
  trust_score: number | null;
  is_trusted: boolean;
  coverage: number | null;
  unjudged: UnjudgedPart[];
  summary: string;
  reason_code?: string | null;
  claims_skipped: number;
  action: Action;
  decisions: Decision[];
  judge: { name: string | null; latency_ms: number | null };
  request_id: string;
}
