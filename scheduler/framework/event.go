package framework

import (
	corev1 "k8s.io/api/core/v1"
)

// EventKind is a set of kinds of change that may let a waiting pod go.
type EventKind uint32

// The kinds of change.
const (
	NodeAdded EventKind = 1 << iota
	NodeRemoved
	NodeAllocatable
	NodeLabels
	NodeTaints  // taints or unschedulable
	NodeOther   // annotations, conditions, declared features
	PodAdded    // a pod was assigned to a node
	PodRemoved  // an assigned pod is gone, has ended or is being deleted
	PodShrunk   // an assigned pod asks for less
	PodLabels   // an assigned pod's labels changed
	SelfChanged // the waiting pod itself changed
	VolumeChanged
	ClaimChanged
	StorageClassChanged
	CSINodeChanged
	NamespaceChanged
	PolicyChanged
	CapacityChanged                // of storage: a CSIStorageCapacity or CSIDriver
	AttachmentRemoved              // of a volume to a node
	ResourceClaimChanged           // a claim on devices
	DevicesChanged                 // a ResourceSlice or DeviceClass
	AnyEvent             EventKind = 1<<iota - 1
)

// Event is one change. Node is set for node events, Pod for events about other pods, Namespace and Name for those about claims, volumes and classes.
type Event struct {
	Kind            EventKind
	Namespace, Name string
	Node            *corev1.Node // its new state
	Slot            int          // the node's slot
	Pod             *Pod         // its last state
	Freed           bool         // of a ResourceClaim: it gave devices back
}
