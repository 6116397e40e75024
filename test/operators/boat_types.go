package operators

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// GroupVersion is that of Boat.
var GroupVersion = schema.GroupVersion{Group: "harbour.yare.dev", Version: "v1"}

// AddToScheme adds the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	return (&scheme.Builder{GroupVersion: GroupVersion}).Register(&Boat{}, &BoatList{}).AddToScheme(s)
}

// Boat is moored by its operator: it gets a berth, which is a ConfigMap that it owns.
type Boat struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BoatSpec   `json:"spec"`
	Status            BoatStatus `json:"status,omitempty"`
}

// BoatSpec is what is wanted.
type BoatSpec struct {
	Sails int    `json:"sails"`
	Rig   string `json:"rig,omitempty"`
}

// BoatStatus is what is so.
type BoatStatus struct {
	Berth      string             `json:"berth,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BoatList is a list of boats.
type BoatList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Boat `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (b *Boat) DeepCopyObject() runtime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), b.Status.Conditions...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *BoatList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Boat, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Boat)
	}
	return &out
}
