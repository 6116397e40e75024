package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/client"
)

// Claims names the ResourceClaims that a pod uses, as far as they are made, each once.
func Claims(p *corev1.Pod) []string {
	var out []string
	for i := range p.Spec.ResourceClaims {
		if name, _, err := claims.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil && !slices.Contains(out, *name) {
			out = append(out, *name)
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		out = append(out, e.ResourceClaimName)
	}
	return out
}

// ByClaim is the name of the cache index by ClaimsOf.
const ByClaim = client.SharedIndex + "resourceclaim"

// ClaimsOf are the ResourceClaims that a pod uses, as index values: namespace and name.
func ClaimsOf(p *corev1.Pod) []string {
	out := Claims(p)
	for i := range out {
		out[i] = p.Namespace + "/" + out[i]
	}
	return out
}
