package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/daemonset"
)

// Shape is a sort of nodes: those like one of the cluster, or those that have Resources.
type Shape struct {
	Node      string // name of a node
	Resources corev1.ResourceList
	Labels    map[string]string // besides those of Node
	Taints    []corev1.Taint    // besides those of Node
}

// mostNodes is how many nodes are added at most.
const mostNodes = 5000

// defaultPods is how many pods a kubelet takes unless it is told otherwise.
const defaultPods = "110"

// ParseShape reads what a node can give to pods, such as "cpu=8,memory=32Gi,pods=110". Without a number of pods it is 110.
func ParseShape(text string) (*Shape, error) {
	s := &Shape{Resources: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(defaultPods)}}
	for _, part := range strings.Split(text, ",") {
		name, amount, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: say what a node has as cpu=8,memory=32Gi,pods=110", part)
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s=%q: not an amount: use numbers such as 8, 500m or 32Gi", name, amount)
		}
		s.Resources[corev1.ResourceName(name)] = q
	}
	return s, nil
}

func (s Shape) String() string {
	if s.Node != "" {
		return s.Node
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Resources)) {
		q := s.Resources[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// node makes a new node of the shape, and what its drivers say of it.
func (r *run) node(s Shape, name string) (*corev1.Node, *storagev1.CSINode, error) {
	n := &corev1.Node{Status: corev1.NodeStatus{Capacity: s.Resources, Allocatable: s.Resources}}
	var drivers *storagev1.CSINode
	if s.Node != "" {
		like, ok := find[*corev1.Node](r.memory, "", s.Node)
		if !ok {
			return nil, nil, fmt.Errorf("node %q is not in the cluster", s.Node)
		}
		n = like.DeepCopy()
		n.Spec.Unschedulable = false
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") }) // its trouble of now
		if c, ok := find[*storagev1.CSINode](r.memory, "", s.Node); ok {
			drivers = c.DeepCopy()
			drivers.Name = name
			r.gate.identify(drivers)
		}
	}
	n.Name = name
	r.gate.identify(n)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelHostname] = name
	maps.Copy(n.Labels, s.Labels)
	n.Spec.Taints = append(n.Spec.Taints, s.Taints...)
	n.Spec.PodCIDR, n.Spec.PodCIDRs, n.Spec.ProviderID = "", nil, ""
	n.Status.VolumesAttached, n.Status.VolumesInUse, n.Status.Addresses = nil, nil, nil
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n, drivers, nil
}

// addNode gives the cluster a node, on which the DaemonSets' pods are already.
func (r *run) addNode(n *corev1.Node) {
	for _, o := range r.memory.all(client.ResourceOf[*appsv1.DaemonSet](), "") {
		ds := o.(*appsv1.DaemonSet)
		p := daemonset.Member(ds, n, "simulated")
		if p == nil {
			continue
		}
		p.Name = ds.Name + "-on-" + n.Name
		if made, err := r.gate.prepare(r.ctx, p); err == nil {
			pod := made.(*corev1.Pod)
			pod.Spec.NodeName = n.Name
			r.memory.put(pod)
		}
	}
	r.memory.put(n)
}

// grow adds nodes of a shape until all pods have a place, or another node helps none.
func (r *run) grow(s Shape) error {
	r.added = &Nodes{Like: s.String()}
	prefix := "new"
	if s.Node != "" {
		prefix = s.Node + "-like"
	}
	before := r.homeless()
	for step := 1; before > 0 && r.added.Added < mostNodes; {
		var names []string
		for k := range min(step, mostNodes-r.added.Added) {
			names = append(names, fmt.Sprintf("%s-%d", prefix, r.added.Added+k+1))
		}
		for _, name := range names {
			if err := r.addLike(s, name); err != nil {
				return err
			}
		}
		if err := r.rest(); err != nil {
			return err
		}
		left := r.homeless()
		if left >= before {
			r.removeNodes(names)
			return nil
		}
		r.added.Added += len(names)
		step, before = max(1, left*step/(before-left)/2), left // no more than half of what it will take
	}
	r.added.Enough = before == 0
	return nil
}

func (r *run) addLike(s Shape, name string) error {
	n, drivers, err := r.node(s, name)
	if err != nil {
		return err
	}
	if drivers != nil {
		r.memory.put(drivers)
	}
	if s.Node != "" {
		r.copySlices(s.Node, name)
	}
	r.addNode(n)
	return nil
}

// copySlices gives a node the devices that another one has of its own.
func (r *run) copySlices(from, to string) {
	for _, o := range r.memory.all(client.ResourceOf[*resourcev1.ResourceSlice](), "") {
		slice := o.(*resourcev1.ResourceSlice)
		if slice.Spec.NodeName == nil || *slice.Spec.NodeName != from {
			continue
		}
		slice = slice.DeepCopy()
		slice.Name = to + "-" + slice.Name
		r.gate.identify(slice)
		slice.Spec.NodeName, slice.Spec.Pool.Name = &to, to+"-"+slice.Spec.Pool.Name
		r.memory.put(slice)
	}
}

// removeNodes takes back nodes that took no pod but those of DaemonSets.
func (r *run) removeNodes(names []string) {
	for _, o := range r.memory.all(client.ResourceOf[*corev1.Pod](), "") {
		if p := o.(*corev1.Pod); slices.Contains(names, p.Spec.NodeName) {
			r.memory.drop(resourceOf(p), keyOf(p))
		}
	}
	for _, o := range r.memory.all(client.ResourceOf[*resourcev1.ResourceSlice](), "") {
		if slice := o.(*resourcev1.ResourceSlice); slice.Spec.NodeName != nil && slices.Contains(names, *slice.Spec.NodeName) {
			r.memory.drop(resourceOf(slice), keyOf(slice))
		}
	}
	for _, name := range names {
		r.memory.drop(client.ResourceOf[*corev1.Node](), types.NamespacedName{Name: name})
		r.memory.drop(client.ResourceOf[*storagev1.CSINode](), types.NamespacedName{Name: name})
	}
}

// homeless counts the pods that more nodes shall help: those asked about, and those that lost their place.
func (r *run) homeless() int {
	n := 0
	seen := map[types.UID]bool{}
	for _, list := range [][]*subject{r.asked, r.moved, r.evicted} {
		for _, s := range list {
			if s.gone != "" || seen[s.uid] {
				continue
			}
			seen[s.uid] = true
			if p, ok := find[*corev1.Pod](r.memory, s.key.Namespace, s.key.Name); ok && p.Spec.NodeName == "" {
				n++
			}
		}
	}
	return n
}
