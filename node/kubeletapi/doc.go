// Package kubeletapi is a node's HTTPS service, with the paths and answers of the
// kubelet's: logs, exec, attach, port-forward, run, the pods on the node,
// statistics and metrics. The API server proxies to it for `kubectl logs` and
// friends; metrics-server and Prometheus scrape it.
//
// Every request but /healthz is authenticated and then authorized as an access
// to the node's subresources (nodes/log, nodes/stats, nodes/metrics, nodes/pods,
// nodes/healthz, nodes/configz, nodes/proxy), by interfaces that the caller
// injects; Delegated makes them from TokenReview and SubjectAccessReview.
//
// Exec, attach and port-forward go to the streaming server that the container
// runtime names; this package is the proxy between, for SPDY and WebSocket
// clients alike. It changes nothing on the node, and holds no state but the last
// CPU sample.
package kubeletapi
