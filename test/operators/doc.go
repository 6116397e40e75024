// Package operators tests that what is written for controller-runtime's envtest runs on Yare unchanged: an operator's suite as kubebuilder lays it
// out (custom resource, reconciler, defaulting, validating and converting nothing but its own), and controller-runtime's own suites from its module.
//
// It is a module of its own, so that the test frameworks which those suites need are no dependencies of Yare. The tests build yare from the repository
// around them and link it as kube-apiserver, etcd and kubectl (`yare envtest`).
package operators
