package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/yare-project/yare/kind"
)

// group is one API group with its versions, preferred first.
type group struct {
	name     string
	versions []groupVersion
}

// groupVersion lists the resources of a version by name, a subresource after its resource.
type groupVersion struct {
	name      string
	resources []metav1.APIResource
	// remote is set if another server serves the version.
	remote *Service
	place  Place
}

// groupsOf derives the groups, in the order of their first kind.
func groupsOf(kinds []*kind.Kind) []group {
	var order []string
	resources := map[string]map[string][]metav1.APIResource{}
	for _, k := range kinds {
		for i := range k.Versions {
			v := &k.Versions[i]
			if v.Unserved {
				continue
			}
			if resources[v.Group] == nil {
				resources[v.Group] = map[string][]metav1.APIResource{}
				order = append(order, v.Group)
			}
			resources[v.Group][v.Version] = append(resources[v.Group][v.Version], resourcesOf(k, v)...)
		}
	}
	out := make([]group, 0, len(order))
	for _, name := range order {
		g := group{name: name}
		for v, rs := range resources[name] {
			slices.SortStableFunc(rs, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
			g.versions = append(g.versions, groupVersion{name: v, resources: rs})
		}
		// A stable version goes before a beta one, a newer before an older: the order that every client assumes.
		slices.SortFunc(g.versions, func(a, b groupVersion) int { return -version.CompareKubeAwareVersionStrings(a.name, b.name) })
		out = append(out, g)
	}
	return out
}

// resourcesOf lists a version's resource and its subresources.
func resourcesOf(k *kind.Kind, v *kind.Version) []metav1.APIResource {
	r := metav1.APIResource{
		Name: v.Names.Plural, SingularName: v.Names.Singular, Namespaced: k.Scope == kind.Namespaced, Kind: v.Kind,
		Verbs: sorted(k.Verbs), ShortNames: v.Names.Short, Categories: v.Names.Categories,
	}
	if !k.Virtual {
		r.StorageVersionHash = storageVersionHash(k.Hub)
	}
	out := []metav1.APIResource{r}
	add := func(name string, body schema.GroupVersionKind, verbs []string) {
		s := metav1.APIResource{Name: r.Name + "/" + name, Namespaced: r.Namespaced, Kind: r.Kind, Verbs: verbs}
		if body.Kind != "" {
			s.Kind = body.Kind
			if body.GroupVersion() != v.GroupVersion() {
				s.Group, s.Version = body.Group, body.Version
			}
		}
		out = append(out, s)
	}
	if k.HasStatus && !v.NoStatus {
		add("status", schema.GroupVersionKind{}, replaceVerbs)
	}
	if k.Scale != nil && !v.NoScale {
		add("scale", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, replaceVerbs)
	}
	for i := range k.Subs {
		add(k.Subs[i].Name, k.Subs[i].Body, subVerbs(&k.Subs[i]))
	}
	return out
}

var replaceVerbs = []string{"get", "patch", "update"}

var verbOfMethod = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

func subVerbs(s *kind.ErasedSub) []string {
	switch {
	case s.Create != nil:
		return []string{"create"}
	case s.NoPatch:
		return []string{"update"}
	case s.Replace != nil:
		return replaceVerbs
	}
	var verbs []string
	for _, m := range s.Methods {
		if v := verbOfMethod[m]; v != "" && !slices.Contains(verbs, v) {
			verbs = append(verbs, v)
		}
	}
	return sorted(verbs)
}

func sorted(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return out
}

// storageVersionHash names the stored form, as Kubernetes computes it: clients see whether two resources share their storage.
func storageVersionHash(gvk schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(gvk.Group + "/" + gvk.Version + "/" + gvk.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}
