import { PolicyViolationError } from "./errors.js";
import type { Transport } from "./transport.js";
import type { Action, Decision, Reported, SourceDocument } from "./types.js";

/** The gateway's response to a step of a run. */
export interface RunStep {
  run_id: string;
  status: string;
  action: Action;
  decisions: Decision[];
  blocked_by: string | null;
  abstention_response: string | null;
  step: number;
  recorded: Record<string, number>;
  request_id: string | null;
}

export interface RunOptions {
  /** The model that the agent uses. */
  model?: string;
  /** Whether a blocking decision throws PolicyViolationError. Default: true. */
  enforcePolicy?: boolean;
}

/**
 * An agent's run, to which the gateway applies its policies. Each method sends a record and returns the decisions about
 * it. It throws PolicyViolationError if a policy blocks, unless `enforcePolicy` is false.
 */
export class Run {
  /** All decisions so far. */
  readonly decisions: Decision[] = [];

  private constructor(
    readonly id: string,
    private readonly transport: Transport,
    private readonly enforcePolicy: boolean,
  ) {}

  /** Start a run for `agent`. */
  static async start(transport: Transport, agent: string, options: RunOptions): Promise<Run> {
    const { model, enforcePolicy = true } = options;
    const step = await transport.send<RunStep>({ path: "/v1/runs", body: { agent, ...(model && { model }) } });
    const run = new Run(step.run_id, transport, enforcePolicy);
    run.decisions.push(...step.decisions);
    return run;
  }

  /** Record a retrieved document. */
  async recordRetrieval(document: SourceDocument): Promise<Decision[]> {
    return this.#record("retrieval", document);
  }

  /** Record how well the output is grounded. Repeated calls accumulate. */
  async recordGrounding(reported: Reported): Promise<Decision[]> {
    return this.#record("grounding", reported);
  }

  /** End the run, with its result if there is one. */
  async complete(result?: unknown): Promise<Decision[]> {
    return this.#record("complete", result === undefined ? {} : { result });
  }

  async #record(what: string, body: object): Promise<Decision[]> {
    const path = `/v1/runs/${encodeURIComponent(this.id)}/${what}`;
    const step = await this.transport.send<RunStep>({ path, body, key: crypto.randomUUID() });
    this.decisions.push(...step.decisions);
    const blocking = step.decisions.filter((decision) => decision.action === "block");
    if (this.enforcePolicy && blocking[0]) {
      const reasons = blocking.map((decision) => decision.reason).join("; ");
      const { reason_code: code } = blocking[0];
      throw new PolicyViolationError(reasons, step.decisions, code, null, step.abstention_response, step.request_id);
    }
    return step.decisions;
  }
}
