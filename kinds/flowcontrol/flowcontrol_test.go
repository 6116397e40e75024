package flowcontrol_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/flowcontrol"
)

type level = flowcontrolv1.PriorityLevelConfiguration

func find(t *testing.T, plural string) *kind.Kind {
	t.Helper()
	for _, k := range flowcontrol.Group.Kinds {
		if k.Names.Plural == plural {
			return k
		}
	}
	t.Fatalf("no kind %s", plural)
	return nil
}

// The default objects say what those of Kubernetes say, word for word; defaulting changes nothing in them, and they are valid.
func TestTheDefaultsAreThoseOfKubernetes(t *testing.T) {
	mandatory, suggested := flowcontrol.Mandatory(), flowcontrol.Suggested()
	levels, schemas := map[string]*level{}, map[string]*flowcontrolv1.FlowSchema{}
	for _, o := range append(mandatory.Levels, suggested.Levels...) {
		levels[o.Name] = o
	}
	for _, o := range append(mandatory.Schemas, suggested.Schemas...) {
		schemas[o.Name] = o
	}
	wantLevels, wantSchemas := map[string]*level{}, map[string]*flowcontrolv1.FlowSchema{}
	for _, o := range append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...) {
		wantLevels[o.Name] = o
	}
	for _, o := range append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...) {
		wantSchemas[o.Name] = o
	}
	if d := cmp.Diff(wantLevels, levels) + cmp.Diff(wantSchemas, schemas); d != "" {
		t.Errorf("(-Kubernetes +here)\n%s", d)
	}
	check := func(k *kind.Kind, o kind.Object) {
		d := o.DeepCopyObject().(kind.Object)
		k.Default(d)
		if !equality.Semantic.DeepEqual(o, d) {
			t.Errorf("defaulting changes %s", o.GetName())
		}
		if errs := k.Validate(d, nil); len(errs) > 0 {
			t.Errorf("%s: %v", o.GetName(), errs)
		}
	}
	for _, o := range levels {
		check(find(t, "prioritylevelconfigurations"), o)
	}
	for _, o := range schemas {
		check(find(t, "flowschemas"), o)
	}
}

func TestWhatMayBeChangedOfTheMandatoryObjects(t *testing.T) {
	k := find(t, "prioritylevelconfigurations")
	objects := flowcontrol.Mandatory()
	for name, c := range map[string]struct {
		change func(exempt, catchAll *level)
		want   string // part of what is said; empty: it may be
	}{
		"shares of exempt":       {func(e, _ *level) { e.Spec.Exempt.NominalConcurrencyShares = ptr.To[int32](7) }, ""},
		"lending of exempt":      {func(e, _ *level) { e.Spec.Exempt.LendablePercent = ptr.To[int32](50) }, ""},
		"lending too much":       {func(e, _ *level) { e.Spec.Exempt.LendablePercent = ptr.To[int32](101) }, "must be between 0 and 100, inclusive"},
		"limiting exempt":        {func(e, c *level) { e.Spec = *c.Spec.DeepCopy() }, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"},
		"shares of catch-all":    {func(_, c *level) { c.Spec.Limited.NominalConcurrencyShares = ptr.To[int32](6) }, "spec of 'catch-all' must equal the fixed value"},
		"an annotation of a day": {func(_, c *level) { c.Annotations["x"] = "y" }, ""},
		"the old annotation": {func(_, c *level) {
			c.Annotations["flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"] = ""
		}, "is forbidden"},
	} {
		exempt, catchAll := objects.Levels[0].DeepCopy(), objects.Levels[1].DeepCopy()
		c.change(exempt, catchAll)
		errs := append(k.Validate(exempt, objects.Levels[0]), k.Validate(catchAll, objects.Levels[1])...)
		if text := errs.ToAggregate(); (text == nil) != (c.want == "") || text != nil && !strings.Contains(text.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, text, c.want)
		}
	}
	schema := objects.Schemas[1].DeepCopy()
	schema.Spec.MatchingPrecedence = 9999
	if errs := find(t, "flowschemas").Validate(schema, objects.Schemas[1]); !strings.Contains(errs.ToAggregate().Error(), "spec of 'catch-all' must equal the fixed value") {
		t.Error(errs)
	}
}
