package framework

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Handle is what a plugin may use of the world around it. Functions may be nil where a test needs none; a plugin that can't do without refuses to be made.
type Handle struct {
	// Scheduler is the name of the profile that the plugin is made for.
	Scheduler string
	Nodes     *Nodes
	// Bind binds a pod through the API.
	Bind func(ctx context.Context, pod *corev1.Pod, node string) error
	// Preempt has the victims deleted in the background, for the pod's sake.
	Preempt func(pod *Pod, node string, victims []*Pod)
	// Budgets lists all PodDisruptionBudgets.
	Budgets func() []*policyv1.PodDisruptionBudget
	// Siblings selects the pods of the same Services and controller as pod; nil if there are none.
	Siblings func(pod *corev1.Pod) labels.Selector
	Volumes  Volumes
	// Groups knows the PodGroups; nil means that nobody groups pods.
	Groups Groups
	// Capacity knows how much room is left for new volumes, and what is attached where; nil means that nobody counts that.
	Capacity Capacity
	// Devices knows which extended resources device classes stand for; nil means that none do.
	Devices Devices
	// Ignored are the extended resources that extenders care for, so that NodeResourcesFit does not.
	Ignored []string
	// Approve asks others, in the background, who may be preempted for a pod, and has the best of what they leave carried out; false means that nobody is to
	// be asked. Victims are sorted by falling importance.
	Approve func(pod *Pod, choices []Choice) bool
}

// Groups is what is known of PodGroups.
type Groups interface {
	// Group is the group that a pod names: how many pods must be placed together, and how many there are; known is false while there is no such PodGroup.
	Group(pod *Pod) (least, pods int, known bool)
	// Domain are the nodes that the pod's group must stay on in the decision under way; nil means that it may go anywhere.
	Domain(pod *Pod) Bits
	// Topology is the label by whose value Domain tells nodes apart, where that is not nil.
	Topology(pod *Pod) string
}

// Devices says which extended resources device classes stand for, so that a node that has none of such a resource by itself may do. Epoch changes when an answer may.
type Devices interface {
	Backs(resource corev1.ResourceName) bool
	Epoch() uint64
	// Totals counts the devices of such a resource that the node in a slot reaches, and those of them that are taken.
	Totals(resource corev1.ResourceName, slot int, node *corev1.Node) (all, taken int64)
}

// Choice is a node and the pods that would have to leave it for another.
type Choice struct {
	Node       string
	Victims    []*Pod
	Violations int // how many of them PodDisruptionBudgets protect
}

// Capacity is what CSI drivers say about storage.
type Capacity interface {
	Driver(name string) (*storagev1.CSIDriver, bool)
	// Capacities lists how much storage each class has left where.
	Capacities() []*storagev1.CSIStorageCapacity
	// Attachments lists what is attached, or about to be, to a node.
	Attachments(node string) []*storagev1.VolumeAttachment
}

// Volumes is what is known of storage, and how the scheduler acts on it.
type Volumes interface {
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
	Volume(name string) (*corev1.PersistentVolume, bool)
	// List returns all volumes, in a slice of its own.
	List() []*corev1.PersistentVolume
	Class(name string) (*storagev1.StorageClass, bool)
	// Node is what CSI drivers say about a node.
	Node(name string) (*storagev1.CSINode, bool)
	// Bind reserves a volume for a claim.
	Bind(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error
	// Provision asks for a volume for a claim where node is, and returns the claim as written.
	Provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) (*corev1.PersistentVolumeClaim, error)
	// WaitBound returns once the claim is bound. If node is set, it fails once the provisioner gives that node up.
	WaitBound(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error
}

// Factory makes a plugin from its arguments, JSON of the kind <name>Args of kubescheduler.config.k8s.io/v1; nil stands for the defaults.
type Factory func(args []byte, h *Handle) (Plugin, error)
