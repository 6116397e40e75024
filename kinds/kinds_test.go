package kinds_test

import (
	"bufio"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
)

// everyKind runs a subtest for each kind of each group.
func everyKind(t *testing.T, test func(t *testing.T, g *kind.Group, k *kind.Kind)) {
	t.Helper()
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			t.Run(strings.Trim(g.Name+"."+k.Names.Plural, "."), func(t *testing.T) { test(t, g, k) })
		}
	}
}

func TestNames(t *testing.T) {
	short := map[string]string{}
	plural := map[string]bool{}
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		if m := validation.IsDNS1035Label(k.Names.Plural); len(m) > 0 {
			t.Errorf("plural %q: %v", k.Names.Plural, m)
		}
		if k.Names.Singular != strings.ToLower(k.Names.Kind) {
			t.Errorf("singular %q of kind %s", k.Names.Singular, k.Names.Kind)
		}
		if plural[k.Resource().String()] {
			t.Errorf("%s is declared twice", k.Resource())
		}
		plural[k.Resource().String()] = true
		for _, s := range k.Names.Short {
			if other, taken := short[s]; taken {
				t.Errorf("short name %s is %s's too", s, other)
			}
			short[s] = k.Names.Plural
		}
		if k.Group != g.Name || k.Hub.Group != g.Name || !slices.Contains(g.Versions, k.Hub.Version) {
			t.Errorf("hub %s is no version of group %q, which serves %v", k.Hub, g.Name, g.Versions)
		}
		if !k.Virtual && k.Versions[0].NewList == nil {
			t.Errorf("no list type")
		}
	})
}

var optionsKind = regexp.MustCompile(`\w+Options$`)

// differs are resources that Kubernetes 1.36 serves otherwise, with the reason.
var differs = map[string]string{
	"v1 namespaces/finalize": "every subresource that replaces a part of its parent is read and patched too",

	"scheduling.k8s.io/v1alpha2 podgroups":        "Kubernetes has gangs of pods behind gates that are off",
	"scheduling.k8s.io/v1alpha2 podgroups/status": "the same",
	"scheduling.k8s.io/v1alpha2 workloads":        "the same",
}

// TestServesWhatKubernetesServes compares resources, subresources, scopes, verbs and kinds.
func TestServesWhatKubernetesServes(t *testing.T) {
	want := map[string]string{}
	file, err := os.Open("testdata/resources.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		if parts := strings.SplitN(s.Text(), " ", 3); parts[0] != "#" && differs[parts[0]+" "+parts[1]] == "" {
			// A stream has no body: the kind that Kubernetes gives it is that of its options, which clients don't read.
			want[parts[0]+" "+parts[1]] = optionsKind.ReplaceAllString(parts[2], "-")
		}
	}
	got := map[string]string{}
	for _, g := range kinds.Groups() {
		if strings.HasSuffix(g.Name, ".yare.io") {
			continue
		}
		for _, k := range g.Kinds {
			for i := range k.Versions {
				resources(k, &k.Versions[i], got)
			}
		}
	}
	for name := range differs {
		delete(got, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served resources differ from Kubernetes' (-Kubernetes +here):\n%s", diff)
	}
}

func resources(k *kind.Kind, v *kind.Version, out map[string]string) {
	scope := "cluster "
	if k.Scope == kind.Namespaced {
		scope = "namespaced "
	}
	name := v.GroupVersion().String() + " " + v.Names.Plural
	add := func(sub, verbs, kind string) { out[name+sub] = scope + verbs + " " + kind }
	verbs := slices.Clone(k.Verbs)
	sort.Strings(verbs)
	add("", strings.Join(verbs, ","), v.Kind)
	if k.HasStatus {
		add("/status", "get,patch,update", v.Kind)
	}
	if k.Scale != nil {
		add("/scale", "get,patch,update", "autoscaling/v1 Scale")
	}
	for _, s := range k.Subs {
		body := v.Kind
		if s.Body.Kind != "" {
			body = s.Body.Kind
			if s.Body.GroupVersion() != v.GroupVersion() {
				body = s.Body.GroupVersion().String() + " " + body
			}
		}
		if s.Connect != nil && s.Name != "log" {
			body = "-"
		}
		add("/"+s.Name, strings.Join(subVerbs(s), ","), body)
	}
}

func subVerbs(s kind.ErasedSub) []string {
	switch {
	case s.Create != nil:
		return []string{"create"}
	case s.Replace != nil:
		return []string{"get", "patch", "update"}
	}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	var verbs []string
	for _, m := range s.Methods {
		if verb[m] != "" {
			verbs = append(verbs, verb[m])
		}
	}
	sort.Strings(verbs)
	return slices.Compact(verbs)
}
