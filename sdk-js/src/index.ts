export { Groundlane, type CheckOptions } from "./client.js";
export { GatewayStatusError, GatewayUnreachableError, GroundlaneError, PolicyViolationError } from "./errors.js";
export { Run, type RunOptions, type RunStep } from "./run.js";
export type { ClientOptions } from "./transport.js";
export type * from "./types.js";
export { VERSION } from "./version.js";
