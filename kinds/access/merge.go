package access

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// merge returns a copy of have with what it lacks of want, and whether that differs. Kinds without a rule here are left as they are.
func merge(have, want runtime.Object) (runtime.Object, bool, error) {
	switch h := have.(type) {
	case *rbacv1.ClusterRole:
		w := want.(*rbacv1.ClusterRole)
		return merged(h, h.DeepCopy(), func(out *rbacv1.ClusterRole) error {
			mergeSelectors(out, w)
			if w.AggregationRule == nil {
				out.Rules = mergeRules(out.Rules, w.Rules)
			}
			return nil
		}, &h.ObjectMeta, &w.ObjectMeta, func(o *rbacv1.ClusterRole) *metav1.ObjectMeta { return &o.ObjectMeta })
	case *rbacv1.Role:
		w := want.(*rbacv1.Role)
		return merged(h, h.DeepCopy(), func(out *rbacv1.Role) error {
			out.Rules = mergeRules(out.Rules, w.Rules)
			return nil
		}, &h.ObjectMeta, &w.ObjectMeta, func(o *rbacv1.Role) *metav1.ObjectMeta { return &o.ObjectMeta })
	case *rbacv1.ClusterRoleBinding:
		w := want.(*rbacv1.ClusterRoleBinding)
		return merged(h, h.DeepCopy(), func(out *rbacv1.ClusterRoleBinding) error {
			out.Subjects = mergeSubjects(out.Subjects, w.Subjects)
			return sameRole(h.RoleRef, w.RoleRef)
		}, &h.ObjectMeta, &w.ObjectMeta, func(o *rbacv1.ClusterRoleBinding) *metav1.ObjectMeta { return &o.ObjectMeta })
	case *rbacv1.RoleBinding:
		w := want.(*rbacv1.RoleBinding)
		return merged(h, h.DeepCopy(), func(out *rbacv1.RoleBinding) error {
			out.Subjects = mergeSubjects(out.Subjects, w.Subjects)
			return sameRole(h.RoleRef, w.RoleRef)
		}, &h.ObjectMeta, &w.ObjectMeta, func(o *rbacv1.RoleBinding) *metav1.ObjectMeta { return &o.ObjectMeta })
	case *corev1.ConfigMap:
		w := want.(*corev1.ConfigMap)
		if maps.Equal(h.Data, w.Data) {
			return have, false, nil
		}
		out := h.DeepCopy()
		out.Data = w.Data
		return out, true, nil
	}
	return have, false, nil
}

// merged applies change to out, a copy of have, unless an administrator said that the object is theirs.
func merged[T runtime.Object](have, out T, change func(T) error, haveMeta, wantMeta *metav1.ObjectMeta, metaOf func(T) *metav1.ObjectMeta) (runtime.Object, bool, error) {
	if haveMeta.Annotations[autoupdate] == "false" {
		return have, false, nil
	}
	if err := change(out); err != nil {
		return nil, false, err
	}
	m := metaOf(out)
	m.Labels = union(m.Labels, wantMeta.Labels)
	m.Annotations = union(m.Annotations, wantMeta.Annotations)
	return out, !equality.Semantic.DeepEqual(have, out), nil
}

// union adds to have what it lacks; what is there stays.
func union(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	if out == nil {
		return have
	}
	maps.Copy(out, have)
	return out
}

// mergeRules adds the rules that have does not cover.
func mergeRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, rule := range want {
		if ok, _ := validation.Covers(have, []rbacv1.PolicyRule{rule}); !ok {
			have = append(have, rule)
		}
	}
	return have
}

func mergeSubjects(have, want []rbacv1.Subject) []rbacv1.Subject {
	for _, s := range want {
		if !slices.Contains(have, s) {
			have = append(have, s)
		}
	}
	return have
}

func mergeSelectors(out, want *rbacv1.ClusterRole) {
	if want.AggregationRule == nil {
		return
	}
	if out.AggregationRule == nil {
		out.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, s := range want.AggregationRule.ClusterRoleSelectors {
		if !slices.ContainsFunc(out.AggregationRule.ClusterRoleSelectors, func(h metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(h, s) }) {
			out.AggregationRule.ClusterRoleSelectors = append(out.AggregationRule.ClusterRoleSelectors, s)
		}
	}
}

func sameRole(have, want rbacv1.RoleRef) error {
	if have != want {
		return errReplace
	}
	return nil
}
