package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/client"
)

// claim is one that drivers were asked to prepare.
type claim struct {
	UID       types.UID                `json:"uid"`
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Pods      []types.UID              `json:"pods"`
	Drivers   []string                 `json:"drivers"`
	Devices   map[string][]preparation `json:"devices,omitempty"` // by driver

	prepared bool          // in the lifetime of this process
	turn     chan struct{} // has room for whoever does something to it
}

// preparation is what a driver says of one device.
type preparation struct {
	Pool     string   `json:"pool"`
	Device   string   `json:"device"`
	Requests []string `json:"requests,omitempty"` // none means all
	CDI      []string `json:"cdi,omitempty"`
	Share    *string  `json:"share,omitempty"` // of a device that several claims have
}

// ready completes a claim that is new or was read.
func (c *claim) ready() *claim {
	c.turn = make(chan struct{}, 1)
	if c.Devices == nil {
		c.Devices = map[string][]preparation{}
	}
	return c
}

func compare(a, b *claim) int {
	return strings.Compare(string(a.UID), string(b.UID))
}

// ref is a claim that a pod names.
type ref struct {
	name  string
	owned bool // it must have been made for the pod
	err   error
}

func refs(pod *corev1.Pod) []ref {
	var out []ref
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := claims.Name(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case err != nil:
			out = append(out, ref{err: err})
		case name != nil:
			out = append(out, ref{name: *name, owned: owned})
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		out = append(out, ref{name: e.ResourceClaimName, owned: true})
	}
	return out
}

// claimFor reads a claim, checks that the pod may use it, and puts the pod down for it.
func (m *Manager) claimFor(ctx context.Context, pod *corev1.Pod, r ref) (*claim, error) {
	got, err := client.Of[*resourcev1.ResourceClaim](m.cfg.Transport).Get(ctx, pod.Namespace, r.name)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch ResourceClaim %s referenced by pod %s: %w", r.name, pod.Name, err)
	}
	if r.owned {
		if err := claims.IsForPod(pod, got, false); err != nil {
			return nil, err
		}
	}
	switch {
	case got.Status.Allocation == nil:
		return nil, fmt.Errorf("ResourceClaim %s has no devices yet", r.name)
	case !claims.IsReservedForPod(pod, got, false):
		return nil, fmt.Errorf("pod %s(%s) is not allowed to use ResourceClaim %s(%s)", pod.Name, pod.UID, r.name, got.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[got.UID]
	if c == nil {
		c = (&claim{UID: got.UID, Namespace: got.Namespace, Name: got.Name}).ready()
		for _, d := range got.Status.Allocation.Devices.Results {
			if !slices.Contains(c.Drivers, d.Driver) {
				c.Drivers = append(c.Drivers, d.Driver)
			}
		}
		m.claims[got.UID] = c
	}
	if !slices.Contains(c.Pods, pod.UID) {
		c.Pods = append(c.Pods, pod.UID)
		m.version++
	}
	return c, nil
}
