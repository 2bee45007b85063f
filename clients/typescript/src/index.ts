/**
 * Watches and reads etcd keys through a Shardwatch cluster. Read Client.watch first, and Mirror
 * for a copy of a range.
 */
export { Client, type Config, type ListOptions, type WatchOptions } from "./client.js";
export { type Code, ShardwatchError } from "./errors.js";
export { type Change, Mirror } from "./mirror.js";
export {
  between, type Bytes, type Event, formatPosition, type Got, key, type KeyValue, type Kind, type Listing, parsePosition, type Position,
  prefix, type Range, type Update,
} from "./types.js";
