package dra

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"
)

// Use is a claim that a container uses, with the devices of it that the container gets.
type Use struct {
	Namespace, Claim string
	Devices          []Device
}

// Device is a prepared one.
type Device struct {
	Driver, Pool, Name string
	Share              *string // of a device that several claims have
	CDI                []string
}

// use is what a container names: a claim, or one request of it.
type use struct {
	title          string // as in the container's spec; empty: made for an extended resource
	claim, request string
}

// uses lists what a container names.
func uses(pod *corev1.Pod, container *corev1.Container) ([]use, error) {
	var out []use
	for _, rc := range container.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(pc corev1.PodResourceClaim) bool { return pc.Name == rc.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s: the pod has no claim %q", container.Name, rc.Name)
		}
		name, _, err := claims.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != nil {
			out = append(out, use{title: rc.Name, claim: *name, request: rc.Request})
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		for _, mapped := range e.RequestMappings {
			if mapped.ContainerName == container.Name {
				out = append(out, use{claim: e.ResourceClaimName, request: mapped.RequestName})
			}
		}
	}
	return out, nil
}

// Uses lists the claims that a container uses and their devices; it fails if one of them is not prepared.
func (m *Manager) Uses(pod *corev1.Pod, container *corev1.Container) ([]Use, error) {
	list, err := uses(pod, container)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Use
	for _, u := range list {
		c := m.find(pod, u.claim)
		if c == nil {
			return nil, fmt.Errorf("claim %s is not prepared for pod %s", u.claim, pod.Name)
		}
		i := slices.IndexFunc(out, func(o Use) bool { return o.Claim == c.Name })
		if i < 0 {
			i, out = len(out), append(out, Use{Namespace: c.Namespace, Claim: c.Name})
		}
		out[i].Devices = c.appendDevices(out[i].Devices, u.request)
	}
	return out, nil
}

// appendDevices adds the devices of a request; empty is all of them. A device that several requests have is added once.
func (c *claim) appendDevices(list []Device, request string) []Device {
	for _, driver := range c.Drivers {
		for _, d := range c.Devices[driver] {
			known := func(o Device) bool {
				return o.Driver == driver && o.Pool == d.Pool && o.Name == d.Device && equal(o.Share, d.Share)
			}
			if d.of(request) && !slices.ContainsFunc(list, known) {
				list = append(list, Device{Driver: driver, Pool: d.Pool, Name: d.Device, Share: d.Share, CDI: d.CDI})
			}
		}
	}
	return list
}

func equal(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// Devices lists the CDI devices of a container.
func (m *Manager) Devices(pod *corev1.Pod, container *corev1.Container) ([]string, error) {
	list, err := m.Uses(pod, container)
	var out []string
	for _, u := range list {
		for _, d := range u.Devices {
			for _, id := range d.CDI {
				if !slices.Contains(out, id) {
					out = append(out, id)
				}
			}
		}
	}
	return out, err
}

// find is a pod's claim by name; nil if it is not prepared for the pod. m.mu is held.
func (m *Manager) find(pod *corev1.Pod, name string) *claim {
	for _, c := range m.claims {
		if c.Namespace == pod.Namespace && c.Name == name && slices.Contains(c.Pods, pod.UID) {
			return c
		}
	}
	return nil
}

// of tells whether a device is for a request of the claim; empty is all of them.
func (p *preparation) of(request string) bool {
	return request == "" || len(p.Requests) == 0 || slices.ContainsFunc(p.Requests, func(r string) bool { return r == request || claims.BaseRequestRef(r) == request })
}
