import { GatewayUnreachableError, GroundlaneError, errorFrom } from "./errors.js";
import { VERSION } from "./version.js";

export interface ClientOptions {
  /** The gateway's URL, with or without `/v1`. Default: `GROUNDLANE_BASE_URL`, or http://localhost:8080. */
  baseURL?: string;
  /** A gateway key. Default: `GROUNDLANE_API_KEY`, if set. */
  apiKey?: string;
  /** The time limit for each attempt, in milliseconds. Default: 60,000. */
  timeoutMs?: number;
  /** The maximum number of retries of a request that can be repeated safely. Default: 2. */
  maxRetries?: number;
  /** Replaces the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

/** A POST request. It may be sent again if it has an idempotency `key` or is `repeatable`. */
export interface Call {
  path: string;
  body: object;
  repeatable?: boolean;
  key?: string;
}

const TRANSIENT = new Set([502, 503, 504]);
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;

function fromEnvironment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}

export class Transport {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ClientOptions) {
    const given = options.baseURL ?? fromEnvironment("GROUNDLANE_BASE_URL") ?? "http://localhost:8080";
    const url = URL.canParse(given) ? new URL(given) : undefined;
    if (!url || !["http:", "https:"].includes(url.protocol)) {
      throw new TypeError("baseURL: expected a URL such as http://localhost:8080");
    }
    this.#url = given.replace(/\/+$/, "").replace(/\/v1$/, "");
    const key = options.apiKey ?? fromEnvironment("GROUNDLANE_API_KEY");
    this.#headers = {
      accept: "application/json",
      "content-type": "application/json",
      "user-agent": `groundlane-js/${VERSION}`,
      ...(key ? { authorization: `Bearer ${key}` } : {}),
    };
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#retries = options.maxRetries ?? 2;
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /** Send `call` and return the JSON object in the response. Throws a GroundlaneError. */
  async send<T>(call: Call): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      const outcome = await this.#attempt(call);
      const delay = attempt < this.#retries ? delayAfter(call, outcome, attempt) : undefined;
      if (delay === undefined) {
        if (outcome instanceof GatewayUnreachableError) throw outcome;
        return (await read(outcome)) as T;
      }
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }

  async #attempt(call: Call): Promise<Response | GatewayUnreachableError> {
    const headers = call.key ? { ...this.#headers, "idempotency-key": call.key } : this.#headers;
    try {
      const response = await this.#fetch(this.#url + call.path, {
        method: "POST",
        headers,
        body: JSON.stringify(call.body),
        redirect: "manual",
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
      // The time limit covers the body too.
      const { status, headers: received } = response;
      return new Response(await response.text(), { status, headers: received });
    } catch (cause) {
      const reason = cause instanceof Error ? (cause.cause instanceof Error ? cause.cause : cause).message : String(cause);
      return new GatewayUnreachableError(`The gateway did not answer: ${reason}`, { cause });
    }
  }
}

function delayAfter(call: Call, outcome: Response | GatewayUnreachableError, attempt: number): number | undefined {
  const repeatable = call.repeatable === true || call.key !== undefined;
  const status = outcome instanceof Response ? outcome.status : undefined;
  // A request that got a 429 was not handled.
  const again = status === undefined ? repeatable : status === 429 || (repeatable && TRANSIENT.has(status));
  if (!again) return undefined;
  const wanted = outcome instanceof Response ? Number(outcome.headers.get("retry-after") ?? Number.NaN) * 1000 : Number.NaN;
  if (!Number.isNaN(wanted)) return wanted <= LONGEST_DELAY_MS ? wanted : undefined;
  return FIRST_DELAY_MS * 2 ** attempt * (0.75 + Math.random() / 4);
}

async function read(response: Response): Promise<object> {
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (!response.ok) throw errorFrom(response.status, body, response.headers.get("x-request-id"));
  if (typeof body !== "object" || body === null) {
    throw new GroundlaneError("The response did not come from a Groundlane gateway; the base URL may be wrong.");
  }
  return body;
}
