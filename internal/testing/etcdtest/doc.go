// Package etcdtest runs real etcds for tests and for the chaos runner.
//
//   - [Start] runs one inside the test's process: it starts quickly, and can be
//     stopped and restarted.
//   - [NewProcess] runs one in a separate process, which can be killed and
//     paused. [Binary] builds it from the module, at the version in go.mod.
//   - [Scrape] reads etcd's counters of watchers and range requests.
package etcdtest
