package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative: resources without a domain, and those of kubernetes.io, are Kubernetes' own.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// overcommitAllowed: limits may exceed requests only for native resources other than huge pages.
func overcommitAllowed(name corev1.ResourceName) bool {
	return isNative(name) && !isHugePage(name)
}
