package verbs

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// selector is what a list or watch leaves over.
type selector struct {
	labels labels.Selector   // nil selects all
	needs  [][]stored.Sketch // of the labels that an object must have, one or another of each
	fields []fieldTest
	name   string // when set, the only name that can match
}

type fieldTest struct {
	of    func(kind.Object) string
	value string
	equal bool
}

// selectorOf reads the selectors of a request. A name in the request selects that object alone.
func selectorOf(k *kind.Kind, rq *Request, labelSelector, fieldSelector string) (selector, error) {
	s := selector{name: rq.Ref.Name}
	if labelSelector != "" {
		l, err := labels.Parse(labelSelector)
		if err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
		if !l.Empty() {
			s.labels, s.needs = l, needs(l)
		}
	}
	if fieldSelector == "" {
		return s, nil
	}
	f, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, q := range f.Requirements() {
		if err := s.field(k, rq, q); err != nil {
			return s, err
		}
	}
	return s, nil
}

// needs are the sketches of the labels that l demands.
func needs(l labels.Selector) [][]stored.Sketch {
	requirements, _ := l.Requirements()
	var out [][]stored.Sketch
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var either []stored.Sketch
			for _, value := range r.ValuesUnsorted() {
				either = append(either, stored.SketchOf(r.Key(), value))
			}
			out = append(out, either)
		}
	}
	return out
}

func (s *selector) field(k *kind.Kind, rq *Request, q fields.Requirement) error {
	of, err := fieldOf(k, rq.Version, q.Field)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	equal := q.Operator != selection.NotEquals
	if q.Field == "metadata.name" && equal {
		if s.name != "" && s.name != q.Value && rq.Ref.Name != "" {
			return apierrors.NewBadRequest(fmt.Sprintf("fieldSelector metadata.name=%s contradicts the name %q in the path", q.Value, s.name))
		}
		s.name = q.Value
	}
	s.fields = append(s.fields, fieldTest{of: of, value: q.Value, equal: equal})
	return nil
}

// fieldOf finds a field that can be selected by. A kind with fields of its own has a namespace among them only if its objects live in one; others
// can be asked for it either way, as in Kubernetes.
func fieldOf(k *kind.Kind, v *kind.Version, name string) (func(kind.Object) string, error) {
	if of, ok := v.Fields[name]; ok {
		return of, nil
	}
	own := len(v.Fields) > 0 || v.Settle != nil
	switch {
	case name == "metadata.name":
		return kind.Object.GetName, nil
	case name == "metadata.namespace" && (k.Scope == kind.Namespaced || !own):
		return kind.Object.GetNamespace, nil
	case k.FieldRefusal != "":
		return nil, fmt.Errorf(k.FieldRefusal, name)
	case !own:
		return nil, fmt.Errorf("%q is not a known field selector: only %q, %q", name, "metadata.name", "metadata.namespace")
	}
	return nil, fmt.Errorf("field label not supported: %s", name)
}

// all tells that nothing is left out.
func (s *selector) all() bool { return s.labels == nil && len(s.fields) == 0 && s.name == "" }

// mayMatch reports false if an object with these labels surely does not match.
func (s *selector) mayMatch(labels stored.Sketch) bool {
	for _, either := range s.needs {
		if !slices.ContainsFunc(either, labels.MayHave) {
			return false
		}
	}
	return true
}

func (s *selector) matches(o *stored.Object) bool {
	if s.all() {
		return true
	}
	if !s.mayMatch(o.Labels()) {
		return false
	}
	hub := o.Hub()
	if s.name != "" && hub.GetName() != s.name {
		return false
	}
	for i := range s.fields {
		f := &s.fields[i]
		if (f.of(hub) == f.value) != f.equal {
			return false
		}
	}
	return s.labels == nil || s.labels.Matches(labels.Set(hub.GetLabels()))
}
