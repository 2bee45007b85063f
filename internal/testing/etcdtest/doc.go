// Package etcdtest gives tests and the chaos runner real etcds.
//
//   - [Start] runs one inside the test's process: quick, and stopped and
//     started again at will.
//   - [NewProcess] runs one in a process of its own, which can be killed and
//     paused. [Binary] builds it from the module, at the version in go.mod.
//   - [Scrape] reads etcd's counters of watchers and range requests.
package etcdtest
