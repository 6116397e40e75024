package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *podCheck) checkScheduling(path *field.Path) {
	c.checkAffinity(c.spec.Affinity, path.Child("affinity"))
	checkTolerations(&c.problems, c.spec.Tolerations, path.Child("tolerations"))
	for i, gate := range c.spec.ReadinessGates {
		c.qualified(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	seen := sets.New[string]()
	for i, gate := range c.spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		c.qualified(at, gate.Name)
		if seen.Has(gate.Name) {
			c.add(field.Duplicate(at, gate.Name))
		}
		seen.Insert(gate.Name)
	}
	c.checkSpread(path.Child("topologySpreadConstraints"))
}

func (c *podCheck) checkAffinity(a *corev1.Affinity, path *field.Path) {
	if a == nil {
		return
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if n, at := a.NodeAffinity, path.Child("nodeAffinity"); n != nil {
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			checkNodeSelector(&c.problems, n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(required))
		}
		for i, term := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			at := at.Child(preferred).Index(i)
			c.checkWeight(term.Weight, at)
			checkNodeTerm(&c.problems, &term.Preference, false, at.Child("preference"))
		}
	}
	pods := func(at *field.Path, hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm) {
		for i := range hard {
			c.checkPodTerm(&hard[i], at.Child(required).Index(i))
		}
		for i := range soft {
			at := at.Child(preferred).Index(i)
			c.checkWeight(soft[i].Weight, at)
			c.checkPodTerm(&soft[i].PodAffinityTerm, at.Child("podAffinityTerm"))
		}
	}
	if p := a.PodAffinity; p != nil {
		pods(path.Child("podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		pods(path.Child("podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (c *podCheck) checkWeight(weight int32, path *field.Path) {
	if weight <= 0 || weight > 100 {
		c.invalid(path.Child("weight"), weight, "must be in the range 1-100")
	}
}

func (c *podCheck) checkPodTerm(term *corev1.PodAffinityTerm, path *field.Path) {
	checkSelector(&c.problems, term.LabelSelector, path.Child("labelSelector"))
	checkSelector(&c.problems, term.NamespaceSelector, path.Child("namespaceSelector"))
	for _, name := range term.Namespaces {
		c.label(path.Child("namespace"), name)
	}
	c.checkLabelKeys(term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector, path)
	if term.TopologyKey == "" {
		c.required(path.Child("topologyKey"), "can not be empty")
	}
	c.qualified(path.Child("topologyKey"), term.TopologyKey)
}

// checkLabelKeys checks keys whose values the pod's own labels give. The server merged them into the selector already, so that a key that the
// user selects by as well stands there twice.
func (c *podCheck) checkLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, path *field.Path) {
	for name, keys := range map[string][]string{"matchLabelKeys": match, "mismatchLabelKeys": mismatch} {
		if len(keys) > 0 && selector == nil {
			c.forbidden(path.Child(name), "must not be specified when labelSelector is not set")
			continue
		}
		for i, key := range keys {
			c.qualified(path.Child(name).Index(i), key)
		}
	}
	if selector != nil {
		seen := sets.KeySet(selector.MatchLabels)
		for _, e := range selector.MatchExpressions {
			if i := slices.Index(match, e.Key); i >= 0 && seen.Has(e.Key) {
				c.invalid(path.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector")
			}
			seen.Insert(e.Key)
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			c.invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (c *podCheck) checkSpread(path *field.Path) {
	list := c.spec.TopologySpreadConstraints
	for i := range list {
		s, at := &list[i], path.Index(i)
		c.positive(at.Child("maxSkew"), int64(s.MaxSkew))
		if s.TopologyKey == "" {
			c.required(at.Child("topologyKey"), "can not be empty")
		}
		oneOf(&c.problems, at.Child("whenUnsatisfiable"), s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if slices.ContainsFunc(list[i+1:], func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == s.TopologyKey && o.WhenUnsatisfiable == s.WhenUnsatisfiable
		}) {
			c.add(field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable)))
		}
		if s.MinDomains != nil {
			c.positive(at.Child("minDomains"), int64(*s.MinDomains))
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.invalid(at.Child("minDomains"), s.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		optionalOneOf(&c.problems, at.Child("nodeAffinityPolicy"), s.NodeAffinityPolicy, corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor)
		optionalOneOf(&c.problems, at.Child("nodeTaintsPolicy"), s.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor)
		c.checkLabelKeys(s.MatchLabelKeys, nil, s.LabelSelector, at)
		checkSelector(&c.problems, s.LabelSelector, at.Child("labelSelector"))
	}
}

func checkSelector(p *problems, selector *metav1.LabelSelector, path *field.Path) {
	p.add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)...)
}

// ValidateNodeSelector checks which nodes are selected, by the rules of a pod's required affinity.
func ValidateNodeSelector(selector *corev1.NodeSelector, path *field.Path) field.ErrorList {
	var p problems
	checkNodeSelector(&p, selector, path)
	return p.list
}

func checkNodeSelector(p *problems, selector *corev1.NodeSelector, path *field.Path) {
	at := path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		p.required(at, "must have at least one node selector term")
	}
	for i := range selector.NodeSelectorTerms {
		checkNodeTerm(p, &selector.NodeSelectorTerms[i], true, at.Index(i))
	}
}

// checkNodeTerm checks one alternative of a node selector. Preferences tolerate values that no label can have.
func checkNodeTerm(p *problems, term *corev1.NodeSelectorTerm, strict bool, path *field.Path) {
	for i, r := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				p.required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				p.forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				p.required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			p.invalid(at.Child("operator"), r.Operator, "not a valid selector operator")
		}
		p.qualified(at.Child("key"), r.Key)
		for j, value := range r.Values {
			if strict {
				p.each(at.Child("values").Index(j), value, validation.IsValidLabelValue(value))
			}
		}
	}
	for i, r := range term.MatchFields {
		at := path.Child("matchFields").Index(i)
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			p.invalid(at.Child("operator"), r.Operator, "not a valid selector operator")
		} else if len(r.Values) != 1 {
			p.required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			p.invalid(at.Child("key"), r.Key, "not a valid field selector key")
			continue
		}
		for j, value := range r.Values {
			p.subdomain(at.Child("values").Index(j), value)
		}
	}
}

// ValidateTolerations checks the tolerations of a pod, or of what is added to one.
func ValidateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var p problems
	checkTolerations(&p, list, path)
	return p.list
}

func checkTolerations(p *problems, list []corev1.Toleration, path *field.Path) {
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			p.qualified(at.Child("key"), t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			p.invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			p.invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
				p.invalid(at.Child("operator"), t.Value, strings.Join(messages, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				p.invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			// The comparing operators are known, but their feature (TaintTolerationComparisonOperators) is off.
			p.add(field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
		default:
			p.add(field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			checkTaintEffect(p, t.Effect, at.Child("effect"))
		}
	}
}

func checkTaintEffect(p *problems, effect corev1.TaintEffect, path *field.Path) {
	neededInOrder(p, path, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}
