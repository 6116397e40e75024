package apiextensions_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// A format that nobody knows checks nothing; its author hears of it once.
func TestUnknownFormatsAreWarnedOf(t *testing.T) {
	type props = apiextensionsv1.JSONSchemaProps
	d := sample()
	d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]props{
		"day":   {Type: "string", Format: "date"},
		"size":  {Type: "integer", Format: "huge"},
		"names": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{Type: "string", Format: "nickname"}}},
		"rest":  {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &props{Type: "string", Format: "nickname"}}},
	}
	want := []string{`unrecognized format "huge"`, `unrecognized format "nickname"`}
	if diff := cmp.Diff(want, definitions().Warn(d, nil)); diff != "" {
		t.Errorf("new (-want +got):\n%s", diff)
	}
	if got := definitions().Warn(d, d.DeepCopy()); len(got) > 0 {
		t.Errorf("unchanged, but warned: %q", got)
	}
}
