package crd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type condition = apiextensionsv1.CustomResourceDefinitionCondition

// ordered lists the definitions to look at, the oldest first: where two ask for one name, the older has it.
func (s *Server) ordered() []*definition {
	var out []*definition
	for name := range s.dirty {
		if d := s.known[name]; d != nil {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *definition) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// decide returns d with the status that it should have. d itself is not changed.
func (s *Server) decide(d *definition) *definition {
	accepted, problem := accept(d, s.group(d.Spec.Group))
	if s.foreign(d) {
		problem = &conflict{"PluralConflict", fmt.Sprintf("%q is served by the API server itself", groupResource(d))}
		accepted = d.Status.AcceptedNames
	}
	shallow := *d // only the status differs; what stands below the rest stays the store's
	out := &shallow
	out.Status.AcceptedNames = accepted
	out.Status.Conditions = slices.Clone(d.Status.Conditions)
	set := func(c condition) { s.setCondition(out, c) }
	if problem != nil {
		set(condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: problem.reason, Message: problem.text})
		if apihelpers.FindCRDCondition(out, apiextensionsv1.Established) == nil {
			set(condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted"})
		}
	} else {
		set(condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"})
		if !apihelpers.IsCRDConditionTrue(out, apiextensionsv1.Established) && d.DeletionTimestamp == nil {
			set(condition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted",
				Message: "the initial names have been accepted"})
		}
	}
	if c, protected := approval(d); protected {
		set(c)
	}
	return out
}

// setCondition changes a condition; its time is that of the last change of its status.
func (s *Server) setCondition(d *definition, c condition) {
	c.LastTransitionTime = metav1.NewTime(s.Clock.Now())
	at := slices.IndexFunc(d.Status.Conditions, func(have condition) bool { return have.Type == c.Type })
	if at < 0 {
		d.Status.Conditions = append(d.Status.Conditions, c)
		return
	}
	if have := d.Status.Conditions[at]; have.Status == c.Status && !have.LastTransitionTime.IsZero() {
		c.LastTransitionTime = have.LastTransitionTime
	}
	d.Status.Conditions[at] = c
}

// conflict is why a name is refused.
type conflict struct{ reason, text string }

// accept decides which of the names that d asks for it gets, keeping those that it has; the last conflict is told.
func accept(d *definition, in *group) (apiextensionsv1.CustomResourceDefinitionNames, *conflict) {
	want, have := d.Spec.Names, d.Status.AcceptedNames
	out := have
	var problem *conflict
	one := func(reason, want, have string, realm holders, into *string) {
		if want != have && realm.taken(want, d.Name) {
			problem = &conflict{reason, fmt.Sprintf("%q is already in use", want)}
			return
		}
		*into = want
	}
	one("PluralConflict", want.Plural, have.Plural, in.resources, &out.Plural)
	one("SingularConflict", want.Singular, have.Singular, in.resources, &out.Singular)
	if refused := slices.DeleteFunc(slices.Clone(want.ShortNames), func(n string) bool {
		return slices.Contains(have.ShortNames, n) || !in.resources.taken(n, d.Name)
	}); len(refused) > 0 {
		problem = &conflict{"ShortNamesConflict", fmt.Sprintf("%q is already in use", strings.Join(refused, `", "`))}
	} else {
		out.ShortNames = want.ShortNames
	}
	one("KindConflict", want.Kind, have.Kind, in.kinds, &out.Kind)
	one("ListKindConflict", want.ListKind, have.ListKind, in.kinds, &out.ListKind)
	out.Categories = want.Categories
	return out, problem
}

// approval tells whether a definition in a group of Kubernetes' own was approved there, as its annotation says.
func approval(d *definition) (condition, bool) {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return condition{}, false
	}
	c := condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	var state apihelpers.APIApprovalState
	state, c.Message = apihelpers.GetAPIApprovalState(d.Annotations)
	switch state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	default:
		c.Reason = "InvalidAnnotation"
	}
	return c, true
}
