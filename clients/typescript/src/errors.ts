import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type ServiceError, status } from "@grpc/grpc-js";

/** The kind of an error, as a word. */
export type Code =
  "invalid" | "denied" | "unauthenticated" | "compacted" | "future" | "lineage" | "unavailable" | "too big";

/** An error for the application. */
export class ShardwatchError extends Error {
  override readonly name = "ShardwatchError";
  /** floor is the oldest available revision; with compacted, if a node reported it. */
  constructor(readonly code: Code, message: string, readonly floor = 0n) {
    super(message);
  }
}

/** Makes the client leave a node, for another one or for a while. Not for applications. */
export class Leave extends Error {
  /** Minimum penalty in milliseconds; undefined: none. */
  penalise: number | undefined;
  hints: string[] = [];
  /** The delay that the node requested, in milliseconds. */
  after = 0;
  /** Do not avoid the node itself. */
  stay = false;
  /** The error for the application, if a read gives up; undefined: no node answered. */
  error: ShardwatchError | undefined;

  constructor(why: string, how: Partial<Pick<Leave, "penalise" | "hints" | "after" | "stay" | "error">> = {}) {
    super(why);
    Object.assign(this, how);
  }
}

/** A node did not answer in time. */
export class Silent extends Leave {
  constructor() {
    super("node is silent", { penalise: 0 });
  }
}

/** Returns the fields of a message: number, and content if it is length-delimited. */
function* fields(b: Uint8Array): Generator<[number, Uint8Array | bigint]> {
  const r = new BinaryReader(b);
  while (r.pos < r.len) {
    const [no, type] = r.tag();
    if (type === 2) yield [no, r.bytes()];
    else if (type === 0) yield [no, BigInt(r.int64())];
    else r.skip(type);
  }
}

const text = (b: Uint8Array | bigint): string => (typeof b === "bigint" ? "" : Buffer.from(b).toString());

interface Details {
  reason: string;
  metadata: Map<string, string>;
  after: number;
}

/** Reads google.rpc.Status: ErrorInfo and RetryInfo in its details. */
function details(err: ServiceError): Details {
  const out: Details = { reason: "", metadata: new Map(), after: 0 };
  for (const raw of err.metadata?.get("grpc-status-details-bin") ?? []) {
    for (const [no, any] of fields(Buffer.from(raw))) {
      if (no !== 3 || typeof any === "bigint") continue;
      const parts = new Map(fields(any));
      const value = parts.get(2);
      if (value === undefined || typeof value === "bigint") continue;
      const type = text(parts.get(1) ?? new Uint8Array());
      if (type.endsWith("/google.rpc.ErrorInfo")) readInfo(value, out);
      if (type.endsWith("/google.rpc.RetryInfo")) {
        const delay = new Map(fields(value)).get(1);
        if (delay === undefined || typeof delay === "bigint") continue;
        const time = new Map(fields(delay));
        out.after = Number(time.get(1) ?? 0n) * 1000 + Number(time.get(2) ?? 0n) / 1e6;
      }
    }
  }
  return out;
}

function readInfo(value: Uint8Array, out: Details): void {
  let domain = "", reason = "";
  const metadata = new Map<string, string>();
  for (const [no, content] of fields(value)) {
    if (no === 1) reason = text(content);
    if (no === 2) domain = text(content);
    if (no === 3 && typeof content !== "bigint") {
      const entry = new Map(fields(content));
      metadata.set(text(entry.get(1) ?? 0n), text(entry.get(2) ?? 0n));
    }
  }
  if (domain === "shardwatch.dev") Object.assign(out, { reason, metadata });
}

/** Returns the error for the application, or the next step (docs/protocol.md, section 10). */
export function judge(err: ServiceError, mayRenew: boolean): ShardwatchError | Leave {
  const d = details(err);
  const message = err.details || err.message;
  switch (err.code) {
    case status.UNAVAILABLE: {
      const hints = (d.metadata.get("endpoints") ?? "").split(",").map((a) => a.trim()).filter(Boolean);
      return new Leave(message, { penalise: d.reason === "" || d.reason === "DRAINING" ? 0 : undefined, hints, after: d.after });
    }
    case status.DEADLINE_EXCEEDED:
    case status.INTERNAL:
      return new Leave(message, { penalise: 0 });
    case status.CANCELLED:
      return new Leave(message);
    case status.RESOURCE_EXHAUSTED:
      return d.after || d.reason === "LIMIT" ? new Leave(message, { after: d.after }) : new ShardwatchError("invalid", message);
    case status.UNAUTHENTICATED: {
      const error = new ShardwatchError("unauthenticated", message);
      return mayRenew ? new Leave(message, { stay: true, after: 1000, error }) : error;
    }
    case status.PERMISSION_DENIED:
      return new ShardwatchError("denied", message);
    case status.OUT_OF_RANGE:
      return d.reason === "FUTURE_REVISION"
        ? new ShardwatchError("future", message)
        : new ShardwatchError("compacted", message, BigInt(d.metadata.get("floor") ?? 0));
  }
  return new ShardwatchError(d.reason === "WRONG_LINEAGE" ? "lineage" : "invalid", message);
}
