package apply_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/kind"
)

// FuzzApply applies what a client sends to an object whose sets of fields another client wrote: the outcome is that of Kubernetes' own field manager.
func FuzzApply(f *testing.F) {
	for _, s := range [][2]string{
		{`{"f:metadata":{"f:labels":{"f:a":{}}}}`, `{"metadata":{"labels":{"a":"b"}}}`}, {`{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}}}}`, `{"spec":{"containers":[{"name":"c","image":"i"}]}}`},
		{`{"f:spec":{"f:containers":{"k:{\"name\":1}":{},"k:{":{},"i:0":{},"v:\"x\"":{}}}}`, `{"spec":{"containers":[{"name":"c"},{"name":"c"}]}}`}, {`{"x":{}}`, `{"spec":{"containers":[{"image":"i"}]}}`}, {`{"f:":{"f:":{}},".":{}}`, `{}`},
		{`{"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}}}}`, `{"metadata":{"finalizers":["a/b","a/b"]}}`}, {`{"f:spec":{"f:tolerations":{}}}`, `{"spec":{"tolerations":[{"key":"a"}],"nodeName":null}}`}, {`[]`, `{"spec":{"containers":{}}}`}, {`null`, `{"status":{"phase":"Running"},"unknown":1}`},
		{`{"f:spec":{"f:ports":{"k:{\"containerPort\":1,\"protocol\":\"TCP\"}":{}}}}`, `{"spec":{"containers":[{"name":"c","ports":[{"containerPort":1},{"containerPort":1,"protocol":"UDP"}]}]}}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), true)
		f.Add([]byte(s[0]), []byte(s[1]), false)
	}
	s := scheme(f)
	managers := []*apply.Managers{apply.For(pods, apply.NewTypes(s)), apply.For(pods, managedfields.TypeConverter(applyconfigurations.NewTypeConverter(s)))}
	v := &pods.Versions[0]
	f.Fuzz(func(t *testing.T, fields, config []byte, force bool) {
		var object map[string]any
		if json.Unmarshal(config, &object) != nil || object == nil || !json.Valid(fields) {
			return
		}
		object["apiVersion"], object["kind"] = "v1", "Pod"
		live := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", Labels: map[string]string{"a": "x"}}}
		at := metav1.NewTime(time.Unix(1e9, 0))
		live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", Time: &at, FieldsV1: metav1.NewFieldsV1(string(fields))}}
		var out [2]kind.Object
		var outcome [2]string
		for i, m := range managers {
			got, err := m.Apply(live.DeepCopy(), (&unstructured.Unstructured{Object: object}).DeepCopy(), v, "", "me", force)
			out[i], outcome[i] = got, strings.Join(strings.Fields(fmt.Sprint(err)), " ")
		}
		if (outcome[0] == "<nil>") != (outcome[1] == "<nil>") {
			t.Fatalf("%s and %s: %s, not %s", fields, config, outcome[0], outcome[1])
		}
		if outcome[0] != "<nil>" || out[0] == nil || out[1] == nil {
			return
		}
		if d := cmp.Diff(untracked(out[1]), untracked(out[0])); d != "" {
			t.Fatalf("%s and %s: %s", fields, config, d)
		}
	})
}
