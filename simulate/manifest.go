package simulate

import (
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
)

// Manifest is what is to be tried on a cluster.
type Manifest struct {
	// Objects in the order given. Those that bring pods are placed; Nodes, claims, volumes, Services, PriorityClasses and other kinds that placement depends on are added to the
	// cluster, in place of what has the same name there.
	Objects []client.Object
	Ignored []string // what does not matter for scheduling, as kind/name
}

// ParseManifest reads YAML or JSON documents, Lists too. Fields that a kind does not have are refused. Objects that need a namespace and name none get namespace.
func ParseManifest(r io.Reader, namespace string) (Manifest, error) {
	var m Manifest
	known, all := Resources(), builtin()
	err := eachDocument(r, func(d document) error {
		o, err := d.object(true)
		if err != nil {
			return err
		}
		if o == nil {
			m.Ignored = append(m.Ignored, d.Kind+" of "+d.APIVersion)
			return nil
		}
		if !bringsPods(o) && !slices.Contains(known, resourceOf(o)) {
			m.Ignored = append(m.Ignored, kindName(o))
			return nil
		}
		if o.GetName() == "" && o.GetGenerateName() == "" {
			return fmt.Errorf("%s: metadata.name is missing", d.Kind)
		}
		if k := all[d.GroupVersionKind().GroupKind()]; k != nil && k.Scope == kind.Namespaced && o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		m.Objects = append(m.Objects, o)
		return nil
	})
	return m, err
}

// Add appends another manifest.
func (m *Manifest) Add(more Manifest) {
	m.Objects, m.Ignored = append(m.Objects, more.Objects...), append(m.Ignored, more.Ignored...)
}

func kindName(o client.Object) string {
	gvk, _ := client.KindOf(o)
	name := o.GetName()
	if name == "" {
		name = o.GetGenerateName()
	}
	return gvk.Kind + "/" + name
}

// builtin are the kinds of the API by name.
func builtin() map[schema.GroupKind]*kind.Kind {
	out := map[schema.GroupKind]*kind.Kind{}
	for _, group := range kinds.Groups() {
		for _, k := range group.Kinds {
			out[k.Hub.GroupKind()] = k
		}
	}
	return out
}
