package access

import (
	"slices"
	"sync"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// graph knows which objects the pods of which node need. Everything that a pod names is counted per node, so that a question is a
// map look-up; persistent volumes are followed through their claims.
type graph struct {
	mu sync.RWMutex
	// nodes counts, for each object, how many pods of each node need it.
	nodes map[object]map[string]int
	pods  map[types.NamespacedName]*podNeeds
	// latest are the needs of the last pod: the next one's are mostly the same.
	latest []object
	// volumes has the claim and the secrets of each persistent volume, secretVolumes the volumes that need a secret.
	volumes       map[string]volumeNeeds
	secretVolumes map[object]map[string]bool
	// owner is the node of what belongs to exactly one: volume attachments and resource slices.
	owner map[object]string

	// changed is closed and replaced at every change.
	changed chan struct{}
}

// object is what a node may ask for.
type object struct {
	kind            kindOf
	namespace, name string
}

type kindOf uint8

const (
	secrets kindOf = iota
	configMaps
	claims
	volumes
	resourceClaims
	serviceAccounts
	pods
	attachments
	slicesOf
)

type podNeeds struct {
	node  string
	needs []object // shared with pods of the same needs
	said  said
}

// said is what needs are read from. States of a pod share what did not change, so that the same places say the same.
type said struct {
	account          string
	mirror           string
	volumes          *corev1.Volume
	init, containers *corev1.Container
	ephemeral        *corev1.EphemeralContainer
	pulls            *corev1.LocalObjectReference
	claims           *corev1.PodResourceClaim
	statuses         *corev1.PodResourceClaimStatus
	extended         *corev1.PodExtendedResourceClaimStatus
	length           int // of all lists
}

func saidBy(p *corev1.Pod) said {
	return said{p.Spec.ServiceAccountName, p.Annotations[corev1.MirrorPodAnnotationKey], unsafe.SliceData(p.Spec.Volumes), unsafe.SliceData(p.Spec.InitContainers),
		unsafe.SliceData(p.Spec.Containers), unsafe.SliceData(p.Spec.EphemeralContainers), unsafe.SliceData(p.Spec.ImagePullSecrets),
		unsafe.SliceData(p.Spec.ResourceClaims), unsafe.SliceData(p.Status.ResourceClaimStatuses), p.Status.ExtendedResourceClaimStatus,
		len(p.Spec.Volumes) + len(p.Spec.InitContainers) + len(p.Spec.Containers) + len(p.Spec.EphemeralContainers) + len(p.Spec.ImagePullSecrets) +
			len(p.Spec.ResourceClaims) + len(p.Status.ResourceClaimStatuses)}
}

type volumeNeeds struct {
	claim   object
	secrets []object
}

func newGraph() *graph {
	return &graph{
		nodes: map[object]map[string]int{}, pods: map[types.NamespacedName]*podNeeds{},
		volumes: map[string]volumeNeeds{}, secretVolumes: map[object]map[string]bool{}, owner: map[object]string{},
		changed: make(chan struct{}),
	}
}

// set takes over the newest state of an object, drop forgets it.
func (g *graph) set(obj runtime.Object)  { g.change(obj, false) }
func (g *graph) drop(obj runtime.Object) { g.change(obj, true) }

func (g *graph) change(obj runtime.Object, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch o := obj.(type) {
	case *corev1.Pod:
		g.pod(o, gone)
	case *corev1.PersistentVolume:
		g.volume(o, gone)
	case *storagev1.VolumeAttachment:
		g.own(object{kind: attachments, name: o.Name}, o.Spec.NodeName, gone)
	case *resourcev1.ResourceSlice:
		node := ""
		if o.Spec.NodeName != nil {
			node = *o.Spec.NodeName
		}
		g.own(object{kind: slicesOf, name: o.Name}, node, gone)
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *graph) own(what object, node string, gone bool) {
	if gone || node == "" {
		delete(g.owner, what)
		return
	}
	g.owner[what] = node
}

func (g *graph) pod(p *corev1.Pod, gone bool) {
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	old := g.pods[key]
	if old != nil && !gone && old.node == p.Spec.NodeName && old.said == saidBy(p) {
		return // a new status, mostly
	}
	if old != nil {
		g.count(old, -1)
		delete(g.pods, key)
	}
	if gone || p.Spec.NodeName == "" {
		return
	}
	n := &podNeeds{node: p.Spec.NodeName, needs: needsOf(p), said: saidBy(p)}
	if slices.Equal(n.needs, g.latest) {
		n.needs = g.latest
	}
	g.latest = n.needs
	g.pods[key] = n
	g.count(n, 1)
}

// needsOf lists what a pod gives its node access to besides itself. A mirror pod, which its node made, gives access to nothing else.
func needsOf(p *corev1.Pod) []object {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil
	}
	var out []object
	if p.Spec.ServiceAccountName != "" {
		out = append(out, object{serviceAccounts, p.Namespace, p.Spec.ServiceAccountName})
	}
	refs := PodReferences(p)
	for _, set := range []struct {
		kind  kindOf
		names map[string]bool
	}{{secrets, refs.Secrets}, {configMaps, refs.ConfigMaps}, {claims, refs.Claims}, {resourceClaims, refs.ResourceClaims}} {
		for name := range set.names {
			out = append(out, object{set.kind, p.Namespace, name})
		}
	}
	return out
}

func (g *graph) count(p *podNeeds, by int) {
	for _, o := range p.needs {
		per := g.nodes[o]
		if per == nil {
			per = map[string]int{}
			g.nodes[o] = per
		}
		if per[p.node] += by; per[p.node] > 0 {
			continue
		}
		if delete(per, p.node); len(per) == 0 {
			delete(g.nodes, o)
		}
	}
}

func (g *graph) volume(v *corev1.PersistentVolume, gone bool) {
	for _, s := range g.volumes[v.Name].secrets {
		if delete(g.secretVolumes[s], v.Name); len(g.secretVolumes[s]) == 0 {
			delete(g.secretVolumes, s)
		}
	}
	delete(g.volumes, v.Name)
	if gone || v.Spec.ClaimRef == nil {
		return
	}
	n := volumeNeeds{claim: object{claims, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name}}
	for _, ref := range VolumeSecrets(v, v.Spec.ClaimRef.Namespace) {
		s := object{secrets, ref.Namespace, ref.Name}
		n.secrets = append(n.secrets, s)
		if g.secretVolumes[s] == nil {
			g.secretVolumes[s] = map[string]bool{}
		}
		g.secretVolumes[s][v.Name] = true
	}
	g.volumes[v.Name] = n
}

// related tells whether a node has to do with an object; if not, the channel is closed at the next change.
func (g *graph) related(node string, o object) (bool, <-chan struct{}) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch o.kind {
	case attachments, slicesOf:
		return g.owner[o] == node, g.changed
	case volumes:
		return g.viaVolume(node, o.name), g.changed
	case pods:
		p := g.pods[types.NamespacedName{Namespace: o.namespace, Name: o.name}]
		return p != nil && p.node == node, g.changed
	}
	if g.nodes[o][node] > 0 {
		return true, nil
	}
	for name := range g.secretVolumes[o] {
		if g.viaVolume(node, name) {
			return true, nil
		}
	}
	return false, g.changed
}

func (g *graph) viaVolume(node, volume string) bool {
	v, ok := g.volumes[volume]
	return ok && g.nodes[v.claim][node] > 0
}
