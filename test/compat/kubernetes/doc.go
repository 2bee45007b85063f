// Package kubernetes runs Kubernetes, unchanged, on cache nodes instead of etcd, and compares with
// an etcd.
//
//   - TestStorage: the storage tests of kube-apiserver, from their own module.
//     One package of it, which gives the tests their etcd, is replaced.
//   - TestKubeAPIServer: a kube-apiserver, built from its module, with clients
//     that list and watch; and while nodes are killed.
//   - TestManifestsAreTaken: kube-apiserver validates deploy/k8s.
//
// It is a separate module, so that Kubernetes' dependencies do not affect the product. `make
// compat` runs it. SUITE names tests of TestStorage's suites, as for -run, and also prints the
// nodes' logs.
package kubernetes
