package flowcontrol

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plan is what is to be done.
type plan struct {
	createLevels, updateLevels, deleteLevels    []*flowcontrolv1.PriorityLevelConfiguration
	createSchemas, updateSchemas, deleteSchemas []*flowcontrolv1.FlowSchema
	statuses                                    []*flowcontrolv1.FlowSchema
}

func (p plan) empty() bool {
	return len(p.createLevels)+len(p.updateLevels)+len(p.deleteLevels)+len(p.createSchemas)+len(p.updateSchemas)+len(p.deleteSchemas)+len(p.statuses) == 0
}

// decide compares what there is with what there should be.
func decide(cfg Config, haveSchemas []*flowcontrolv1.FlowSchema, haveLevels []*flowcontrolv1.PriorityLevelConfiguration, now metav1.Time) plan {
	var p plan
	p.createLevels, p.updateLevels, p.deleteLevels = defaults(cfg.MandatoryLevels, cfg.SuggestedLevels, haveLevels, (*flowcontrolv1.PriorityLevelConfiguration).DeepCopy, takeLevel)
	p.createSchemas, p.updateSchemas, p.deleteSchemas = defaults(cfg.MandatorySchemas, cfg.SuggestedSchemas, haveSchemas, (*flowcontrolv1.FlowSchema).DeepCopy, takeSchema)
	exists := map[string]bool{}
	for _, l := range haveLevels {
		exists[l.Name] = true
	}
	for _, l := range p.createLevels {
		exists[l.Name] = true
	}
	for _, s := range haveSchemas {
		if slices.ContainsFunc(p.updateSchemas, func(u *flowcontrolv1.FlowSchema) bool { return u.Name == s.Name }) {
			continue // its next state will be judged
		}
		if next, changed := withCondition(s, exists[s.Spec.PriorityLevelConfiguration.Name], now); changed {
			p.statuses = append(p.statuses, next)
		}
	}
	return p
}

// defaults finds which default objects are missing, out of date or left over. take gives an object another's spec and tells whether that
// changed anything.
func defaults[T metav1.Object](mandatory, suggested, have []T, clone func(T) T, take func(into, from T) bool) (create, update, remove []T) {
	known := map[string]T{}
	for _, o := range have {
		known[o.GetName()] = o
	}
	wanted := map[string]bool{}
	consider := func(want T, always bool) {
		wanted[want.GetName()] = true
		current, there := known[want.GetName()]
		if !there {
			create = append(create, clone(want))
			return
		}
		mine := always || follows(current)
		next := clone(current)
		changed := mine && take(next, want)
		if value, err := strconv.ParseBool(current.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err != nil || value != mine {
			annotate(next, mine)
			changed = true
		}
		if changed {
			update = append(update, next)
		}
	}
	for _, o := range suggested {
		consider(o, false)
	}
	for _, o := range mandatory {
		consider(o, true)
	}
	for _, o := range have {
		if value, err := strconv.ParseBool(o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err == nil && value && !wanted[o.GetName()] {
			remove = append(remove, o)
		}
	}
	return create, update, remove
}

// follows tells whether an object's spec is to follow the default: as its annotation says; without one, as long as nobody changed the spec.
func follows(o metav1.Object) bool {
	if value, err := strconv.ParseBool(o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err == nil {
		return value
	}
	return o.GetGeneration() == 1
}

func annotate(o metav1.Object, value bool) {
	all := maps.Clone(o.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	all[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(value)
	o.SetAnnotations(all)
}

// takeLevel leaves the shares of the exempt level alone: they are the administrator's.
func takeLevel(into, from *flowcontrolv1.PriorityLevelConfiguration) bool {
	want := from.Spec.DeepCopy()
	if want.Exempt != nil && into.Spec.Exempt != nil {
		want.Exempt = into.Spec.Exempt
	}
	if equality.Semantic.DeepEqual(*want, into.Spec) {
		return false
	}
	into.Spec = *want
	return true
}

func takeSchema(into, from *flowcontrolv1.FlowSchema) bool {
	if equality.Semantic.DeepEqual(from.Spec, into.Spec) {
		return false
	}
	into.Spec = *from.Spec.DeepCopy()
	return true
}

// withCondition says in a copy whether the schema's level exists, in the words of Kubernetes.
func withCondition(s *flowcontrolv1.FlowSchema, found bool, now metav1.Time) (*flowcontrolv1.FlowSchema, bool) {
	name := s.Spec.PriorityLevelConfiguration.Name
	want := flowcontrolv1.FlowSchemaCondition{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, LastTransitionTime: now, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", name)}
	if !found {
		want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", name)
	}
	at := slices.IndexFunc(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == want.Type })
	if at >= 0 {
		have := s.Status.Conditions[at]
		if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			return s, false
		}
		if have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
	}
	next := s.DeepCopy()
	if at >= 0 {
		next.Status.Conditions[at] = want
	} else {
		next.Status.Conditions = append(next.Status.Conditions, want)
	}
	return next, true
}
