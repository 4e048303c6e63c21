import { GroundlaneError } from "./errors.js";
import { Run, type RunOptions } from "./run.js";
import { Transport, type ClientOptions } from "./transport.js";
import type { CheckReport, SourceDocument } from "./types.js";

export interface CheckOptions {
  /** The user's message that the text answers. Without it, it isn't known what "Yes." answers. */
  question?: string;
  /** The name or id of a policy on the gateway. Its rules apply to the text. */
  policy?: string;
  /** Grounding rules for this check only. */
  rules?: Record<string, unknown>;
}

/** A client for the gateway's own endpoints. For model calls, use the `openai` package with the gateway's URL. */
export class Groundlane {
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
  }

  /** Check `text` against `sources`, which are texts or documents. Throws a GroundlaneError. */
  async check(
    text: string,
    sources: readonly (string | SourceDocument)[],
    { question, policy, rules }: CheckOptions = {},
  ): Promise<CheckReport> {
    const body = {
      text,
      documents: sources,
      ...(question?.trim() && { question }),
      ...(policy && { policy }),
      ...(rules && { options: rules }),
    };
    return this.#transport.send({ path: "/v1/grounding/check", body, repeatable: true });
  }

  /** Start a run for `agent`; end it with `run.complete()`. */
  async startRun(agent: string, options: RunOptions = {}): Promise<Run> {
    return Run.start(this.#transport, agent, options);
  }

  /**
   * Call `work` in a run for `agent`. Its return value is returned, and recorded as the run's result. If `work` throws,
   * the run is completed without a result.
   */
  async run<T>(agent: string, work: (run: Run) => Promise<T>, options: RunOptions = {}): Promise<T> {
    const run = await this.startRun(agent, options);
    let result: T;
    try {
      result = await work(run);
    } catch (error) {
      await run.complete().catch((other: unknown) => {
        // The original error matters more.
        if (!(other instanceof GroundlaneError)) throw other;
      });
      throw error;
    }
    await run.complete(result);
    return result;
  }
}
