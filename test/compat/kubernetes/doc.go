// Package kubernetes runs Kubernetes, unchanged, on cache nodes in place of
// etcd, and compares with an etcd.
//
//   - TestStorage: the storage tests of kube-apiserver, from their own module.
//     One package of it, which gives the tests their etcd, is replaced.
//   - TestKubeAPIServer: a kube-apiserver, built from its module, with clients
//     that list and watch; and while nodes are killed.
//   - TestManifestsAreTaken: that kube-apiserver judges deploy/k8s.
//
// It is a module of its own, so that what Kubernetes depends on is no concern
// of the product. `make compat` runs it. SUITE names tests of TestStorage's
// suites, as -run does, and then shows what the nodes logged.
package kubernetes
