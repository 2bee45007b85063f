// Package telemetry has OpenTelemetry instruments, exported as Prometheus metrics, and the HTTP endpoints for
// operators and load balancers.
//
// Read [Telemetry] first. All methods may be called concurrently.
//
// # How to name an instrument
//
// A package has its instruments in one struct in metrics.go, built from a
// [go.opentelemetry.io/otel/metric.Meter] (in tests: the noop package's meter). Names have the form
//
//	shardwatch.<subsystem>.<what>     dots between, underscores within words
//
// without unit and without "total": the exporter adds both. The exporter (0.69) translates them as follows
// (TestNames holds this table):
//
//	instrument                          kind            unit      Prometheus
//	shardwatch.cache.events             Counter         {event}   shardwatch_cache_events_total
//	shardwatch.cache.sent               Counter         By        shardwatch_cache_sent_bytes_total
//	shardwatch.cache.stall              Counter         s         shardwatch_cache_stall_seconds_total
//	shardwatch.cache.watchers           UpDownCounter   {watcher} shardwatch_cache_watchers
//	shardwatch.cache.window.size        Gauge           By        shardwatch_cache_window_size_bytes
//	shardwatch.cache.hits               Gauge           1         shardwatch_cache_hits_ratio
//	shardwatch.etcd.revision_fetch      Histogram       s         shardwatch_etcd_revision_fetch_seconds
//
// So: seconds ("s") and bytes ("By"), never milliseconds or kilobytes; for counts the counted thing in braces,
// which adds nothing to the name; {bool} for a value of 0 or 1; "1" only for a ratio from 0 to 1, since the
// name of a gauge with it ends in _ratio.
//
// A histogram without boundaries of its own gets those for durations in seconds ([DurationBuckets]). Histograms
// of other units set theirs with WithExplicitBucketBoundaries.
//
// Labels (attributes) have few values, known beforehand: a shard's ID, a reason, a method. Never use a key, a
// client's address or an error's text. An instrument keeps at most [MaxSeries] combinations; further ones are
// added up under otel_metric_overflow="true".
//
// There is no target_info and no otel_scope_... label: shardwatch_build_info identifies program, version and
// node.
package telemetry
