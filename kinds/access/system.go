package access

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespaces are the ones that every cluster has.
func Namespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// Values of the system's priority classes; what users may give ends at a thousand million.
const (
	SystemClusterCritical = 2000000000
	SystemNodeCritical    = 2000001000
)

func priorityClasses() []*schedulingv1.PriorityClass {
	preempt := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: SystemNodeCritical, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: SystemClusterCritical, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// Authentication is what API servers that extend this one (the aggregation layer) need to know about its callers. They read it from
// ConfigMap kube-system/extension-apiserver-authentication.
type Authentication struct {
	// ClientCA and FrontProxyCA are PEM certificates.
	ClientCA, FrontProxyCA []byte
	// FrontProxyNames are the common names that the front proxy's certificate may have.
	FrontProxyNames []string
	// The headers in which a front proxy says who asks; empty means X-Remote-User, X-Remote-Group, X-Remote-Uid and X-Remote-Extra-.
	UserHeaders, GroupHeaders, UIDHeaders, ExtraPrefixes []string
}

func (a *Authentication) configMap() (*corev1.ConfigMap, error) {
	list := func(in []string) (string, error) {
		if in == nil {
			in = []string{}
		}
		data, err := json.Marshal(in)
		return string(data), err
	}
	or := func(in []string, usual string) []string {
		if len(in) == 0 {
			return []string{usual}
		}
		return in
	}
	out := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		Data: map[string]string{
			"client-ca-file":               string(a.ClientCA),
			"requestheader-client-ca-file": string(a.FrontProxyCA),
		},
	}
	for key, values := range map[string][]string{
		"requestheader-allowed-names":        a.FrontProxyNames,
		"requestheader-username-headers":     or(a.UserHeaders, "X-Remote-User"),
		"requestheader-group-headers":        or(a.GroupHeaders, "X-Remote-Group"),
		"requestheader-uid-headers":          or(a.UIDHeaders, "X-Remote-Uid"),
		"requestheader-extra-headers-prefix": or(a.ExtraPrefixes, "X-Remote-Extra-"),
	} {
		text, err := list(values)
		if err != nil {
			return nil, fmt.Errorf("access: %s: %w", key, err)
		}
		out.Data[key] = text
	}
	return out, nil
}
