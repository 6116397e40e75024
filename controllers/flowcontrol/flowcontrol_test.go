package flowcontrol_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/flowcontrol"
	kinds "github.com/yare-project/yare/kinds/flowcontrol"
)

type (
	level  = flowcontrolv1.PriorityLevelConfiguration
	schema = flowcontrolv1.FlowSchema
)

func defaults() flowcontrol.Config {
	m, s := kinds.Mandatory(), kinds.Suggested()
	return flowcontrol.Config{MandatoryLevels: m.Levels, SuggestedLevels: s.Levels, MandatorySchemas: m.Schemas, SuggestedSchemas: s.Schemas}
}

func stage(t *testing.T) *controllertest.Stage {
	return controllertest.New(t, flowcontrol.Descriptor(defaults()))
}

// find gets a cluster-scoped object; nil if there is none.
func find[T interface {
	*level | *schema
	GetName() string
}](name string, all []T) T {
	for _, o := range all {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

func levelNamed(s *controllertest.Stage, name string) *level {
	return find(name, controllertest.AllIn[*level](s, ""))
}

func schemaNamed(s *controllertest.Stage, name string) *schema {
	return find(name, controllertest.AllIn[*schema](s, ""))
}

func dangling(o *schema) string {
	for _, c := range o.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func TestDefaultsAppearAndComeBack(t *testing.T) {
	s := stage(t).Go()
	count := func() [2]int {
		return [2]int{len(controllertest.AllIn[*level](s, "")), len(controllertest.AllIn[*schema](s, ""))}
	}
	controllertest.UntilEqual(s, "the defaults", [2]int{8, 11}, count)
	controllertest.Delete(s, schemaNamed(s, "global-default"), metav1.DeleteOptions{})
	controllertest.Delete(s, levelNamed(s, "catch-all"), metav1.DeleteOptions{})
	controllertest.UntilEqual(s, "the deleted ones again", [2]int{8, 11}, count)
	s.Until("every schema says that it found its level", func() bool {
		for _, o := range controllertest.AllIn[*schema](s, "") {
			if dangling(o) != "False Found" {
				return false
			}
		}
		return true
	}, func() any { return controllertest.AllIn[*schema](s, "") })
}

func TestASchemaSaysThatItsLevelIsMissingAndWhenItIsThere(t *testing.T) {
	s := stage(t).Go()
	mine := &schema{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	mine.Spec.PriorityLevelConfiguration.Name = "later"
	s.Put(mine)
	controllertest.UntilEqual(s, "dangling", "True NotFound", func() string { return dangling(schemaNamed(s, "mine")) })
	s.Put(&level{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
	controllertest.UntilEqual(s, "found", "False Found", func() string { return dangling(schemaNamed(s, "mine")) })
}

// What an administrator took over stays; what nobody may change comes back; what an older release left goes.
func TestWhoseObjectItIs(t *testing.T) {
	s := stage(t)
	want := map[string]*level{}
	for _, o := range append(kinds.Mandatory().Levels, kinds.Suggested().Levels...) {
		want[o.Name] = o
	}
	put := func(name, annotation string, generation int64, shares int32) {
		o := want["system"].DeepCopy()
		o.Name, o.Generation, o.Annotations = name, generation, nil
		if annotation != "" {
			o.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: annotation}
		}
		o.Spec.Limited.NominalConcurrencyShares = ptr.To(shares)
		s.Put(o)
	}
	put("system", "false", 7, 1)      // taken over
	put("workload-low", "true", 7, 2) // an older release's, to be brought up to date
	put("workload-high", "", 3, 3)    // changed by somebody who did not know of the annotation
	put("catch-all", "false", 2, 4)   // mandatory whatever it says
	put("of-an-older-release", "true", 1, 5)
	put("of-a-user", "", 1, 6)
	exempt := want["exempt"].DeepCopy()
	exempt.Spec.Exempt.NominalConcurrencyShares = ptr.To[int32](50)
	s.Put(exempt)
	s.Go()
	s.Until("the defaults", func() bool {
		return levelNamed(s, "global-default") != nil && levelNamed(s, "of-an-older-release") == nil
	}, func() any { return "" })
	s.Settled()
	got := map[string]string{}
	for _, o := range controllertest.AllIn[*level](s, "") {
		of := "exempt"
		if l := o.Spec.Limited; l != nil {
			of = "its own"
			if w := want[o.Name]; w != nil && cmp.Equal(w.Spec, o.Spec) {
				of = "the default"
			}
		} else if *o.Spec.Exempt.NominalConcurrencyShares == 50 {
			of = "the administrator's shares"
		}
		got[o.Name] = of + ", auto-update " + o.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]
	}
	if d := cmp.Diff(map[string]string{
		"system": "its own, auto-update false", "workload-low": "the default, auto-update true", "workload-high": "its own, auto-update false",
		"catch-all": "the default, auto-update true", "of-a-user": "its own, auto-update ", "exempt": "the administrator's shares, auto-update true",
		"node-high": "the default, auto-update true", "leader-election": "the default, auto-update true", "global-default": "the default, auto-update true",
	}, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestEnsureIsDoneOnceAndForAll(t *testing.T) {
	api := fake.New(nil)
	for range 2 {
		if err := flowcontrol.Ensure(context.Background(), api, defaults()); err != nil {
			t.Fatal(err)
		}
	}
	before := api.Revision()
	if err := flowcontrol.Ensure(context.Background(), api, defaults()); err != nil || api.Revision() != before {
		t.Errorf("a cluster that has all was written to: revision %s, then %s, %v", before, api.Revision(), err)
	}
}
