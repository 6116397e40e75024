// Package selection answers, without looking at all of either, which pods a Service selects and which Services select a pod; and which port of a pod
// a Service's port means.
package selection

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

const (
	byLabel    = client.SharedIndex + "label"    // pods by each of their labels
	bySelector = client.SharedIndex + "selector" // services by one pair of their selector
)

// Matcher matches Services and pods in both directions by cache indexes.
type Matcher struct {
	services client.Cache[*corev1.Service]
	pods     client.Cache[*corev1.Pod]
}

// NewMatcher indexes the caches.
func NewMatcher(services client.Cache[*corev1.Service], pods client.Cache[*corev1.Pod]) *Matcher {
	IndexByLabel(pods)
	pods.AddIndex(pod.ByNode, pod.NodeOf)
	services.AddIndex(bySelector, func(s *corev1.Service) []string {
		if len(s.Spec.Selector) == 0 {
			return nil
		}
		return []string{first(s)}
	})
	return &Matcher{services: services, pods: pods}
}

// IndexByLabel prepares a cache for Matching.
func IndexByLabel(pods client.Cache[*corev1.Pod]) {
	pods.AddIndex(byLabel, func(p *corev1.Pod) (out []string) {
		for k, v := range p.Labels {
			out = append(out, pair(p.Namespace, k, v))
		}
		return out
	})
}

// Matching returns the pods of a namespace that a selector matches. It looks only at those that have one of the labels which match demands, if any.
func Matching(pods client.Cache[*corev1.Pod], namespace string, match map[string]string, selector labels.Selector) []*corev1.Pod {
	var candidates []*corev1.Pod
	if len(match) == 0 {
		candidates = pods.List(namespace)
	} else {
		k := slices.Min(slices.Collect(maps.Keys(match)))
		candidates = pods.By(byLabel, pair(namespace, k, match[k]))
	}
	return slices.DeleteFunc(candidates, func(p *corev1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) })
}

func pair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// first is the pair of a selector under which its Service is indexed.
func first(s *corev1.Service) string {
	k := slices.Min(slices.Collect(maps.Keys(s.Spec.Selector)))
	return pair(s.Namespace, k, s.Spec.Selector[k])
}

// Pods returns the pods that a Service selects, by name; none if it has no selector.
func (m *Matcher) Pods(s *corev1.Service) []*corev1.Pod {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	out := Matching(m.pods, s.Namespace, s.Spec.Selector, labels.SelectorFromSet(s.Spec.Selector))
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// OnNode returns the pods of a node.
func (m *Matcher) OnNode(name string) []*corev1.Pod { return m.pods.By(pod.ByNode, name) }

// Services calls f for each Service that selects a pod.
func (m *Matcher) Services(p *corev1.Pod, f func(*corev1.Service)) {
	for k, v := range p.Labels {
		for _, s := range m.services.By(bySelector, pair(p.Namespace, k, v)) {
			if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
				f(s)
			}
		}
	}
}

// Watch enqueues the Services whose endpoints a pod's change may alter, and those that change themselves.
func (m *Matcher) Watch(enqueue func(loop.Key)) {
	loop.EnqueueSelf(m.services, enqueue)
	m.pods.OnChange(func(old, new *corev1.Pod) {
		if old != nil && new != nil && sameEndpoint(old, new) {
			return
		}
		for _, p := range []*corev1.Pod{old, new} {
			if p != nil {
				m.Services(p, func(s *corev1.Service) { enqueue(loop.KeyOf(s)) })
			}
		}
	})
}

func sameEndpoint(a, b *corev1.Pod) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && a.Spec.NodeName == b.Spec.NodeName && pod.Ready(a) == pod.Ready(b) &&
		pod.Finished(a) == pod.Finished(b) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		a.Status.PodIP == b.Status.PodIP && equality.Semantic.DeepEqual(a.Status.PodIPs, b.Status.PodIPs)
}

// Serves tells whether a Service has endpoints that loops keep: it has a selector and is not just a DNS alias.
func Serves(s *corev1.Service) bool {
	return len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// Counts tells whether a pod belongs into endpoints at all.
func Counts(p *corev1.Pod) bool {
	return !pod.Finished(p) && (p.Status.PodIP != "" || len(p.Status.PodIPs) > 0)
}

// HasName tells whether a pod is addressed by its host name under a Service (DNS for Services and Pods: subdomain).
func HasName(p *corev1.Pod, s *corev1.Service) bool {
	return p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace
}

// Port resolves a Service's port to a pod's: a name by the containers' ports, sidecars among them. False: this pod has no such port.
func Port(p *corev1.Pod, port *corev1.ServicePort) (int32, bool) {
	name := port.TargetPort.StrVal
	if name == "" {
		if n := port.TargetPort.IntVal; n != 0 {
			return n, true
		}
		return port.Port, true
	}
	for _, c := range p.Spec.Containers {
		if n, ok := named(c, name, port.Protocol); ok {
			return n, true
		}
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			if n, ok := named(c, name, port.Protocol); ok {
				return n, true
			}
		}
	}
	return 0, false
}

func named(c corev1.Container, name string, protocol corev1.Protocol) (int32, bool) {
	for _, q := range c.Ports {
		if q.Name == name && orTCP(q.Protocol) == orTCP(protocol) {
			return q.ContainerPort, true
		}
	}
	return 0, false
}

func orTCP(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}
