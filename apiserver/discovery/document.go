package discovery

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	discoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// snapshot is one state of the served kinds with the documents that were asked for so far.
type snapshot struct {
	revision uint64 // of the kinds
	known    uint64 // of the services
	groups   []group

	mu        sync.Mutex
	documents map[documentKey]*document
}

type documentKey struct {
	target  target
	media   media
	address string
}

// maxDocuments bounds the cache: clients choose the address through the Host header.
const maxDocuments = 1024

// document is an encoded answer. Only aggregated ones have an ETag.
type document struct {
	body []byte
	etag string
}

// document returns nil if there is no such group or version.
func (s *snapshot) document(t target, m media, address string) (*document, error) {
	if t != (target{core: true}) || m.aggregated != "" {
		address = "" // only /api tells addresses
	}
	key := documentKey{t, m, address}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.documents[key]; d != nil {
		return d, nil
	}
	obj := s.object(t, m, address)
	if obj == nil {
		return nil, nil
	}
	d := &document{}
	var err error
	if d.body, err = encode(obj, m.encoding); err != nil {
		return nil, fmt.Errorf("encode discovery: %w", err)
	}
	if m.aggregated != "" {
		if d.etag, err = etag(obj); err != nil {
			return nil, err
		}
	}
	if len(s.documents) >= maxDocuments {
		clear(s.documents)
	}
	s.documents[key] = d
	return d, nil
}

func (s *snapshot) object(t target, m media, address string) runtime.Object {
	switch {
	case m.aggregated == "v2":
		return aggregate(s.groups, t.core)
	case m.aggregated == "v2beta1":
		return toBeta(aggregate(s.groups, t.core))
	case t.version != "":
		return s.resourceList(t)
	case t.core:
		return s.versions(address)
	case t.group != "":
		return s.oneGroup(t.group)
	}
	return s.groupList()
}

func (s *snapshot) versions(address string) runtime.Object {
	addresses := []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}}
	out := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{}, ServerAddressByClientCIDRs: addresses}
	if g := s.group(""); g != nil {
		for _, v := range g.versions {
			out.Versions = append(out.Versions, v.name)
		}
	}
	return out
}

func (s *snapshot) groupList() runtime.Object {
	out := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for i := range s.groups {
		if s.groups[i].name != "" {
			out.Groups = append(out.Groups, apiGroup(&s.groups[i]))
		}
	}
	return out
}

func (s *snapshot) oneGroup(name string) runtime.Object {
	g := s.group(name)
	if g == nil {
		return nil
	}
	out := apiGroup(g)
	out.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return &out
}

func apiGroup(g *group) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.name, Version: v.name})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (s *snapshot) resourceList(t target) runtime.Object {
	g := s.group(t.group)
	if g == nil {
		return nil
	}
	i := slices.IndexFunc(g.versions, func(v groupVersion) bool { return v.name == t.version })
	if i < 0 || g.versions[i].remote != nil {
		return nil
	}
	return &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: t.groupVersion().String(),
		APIResources: g.versions[i].resources,
	}
}

func (s *snapshot) group(name string) *group {
	for i := range s.groups {
		if s.groups[i].name == name {
			return &s.groups[i]
		}
	}
	return nil
}

// aggregate makes the list of the core group alone, or of all others.
func aggregate(groups []group, core bool) *discoveryv2.APIGroupDiscoveryList {
	out := &discoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []discoveryv2.APIGroupDiscovery{},
	}
	for _, g := range groups {
		if (g.name == "") != core {
			continue
		}
		item := discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, v.aggregated(g.name))
		}
		out.Items = append(out.Items, item)
	}
	return out
}

func (v *groupVersion) aggregated(group string) discoveryv2.APIVersionDiscovery {
	out := discoveryv2.APIVersionDiscovery{Version: v.name, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
	if v.remote == nil {
		out.Resources = Aggregate(schema.GroupVersion{Group: group, Version: v.name}, v.resources)
		return out
	}
	out.Resources = v.remote.Resources
	if !v.remote.Fresh {
		out.Freshness = discoveryv2.DiscoveryFreshnessStale
	}
	return out
}

// Aggregate turns the unaggregated form into the aggregated one: it folds subresources, which follow their resource by name, into it.
func Aggregate(gv schema.GroupVersion, resources []metav1.APIResource) []discoveryv2.APIResourceDiscovery {
	var out []discoveryv2.APIResourceDiscovery
	at := map[string]int{}
	for _, r := range resources {
		parent, sub, isSub := strings.Cut(r.Name, "/")
		response := &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: r.Kind}
		if r.Version != "" {
			response.Group, response.Version = r.Group, r.Version
		}
		if isSub {
			if i, ok := at[parent]; ok {
				out[i].Subresources = append(out[i].Subresources, discoveryv2.APISubresourceDiscovery{
					Subresource: sub, ResponseKind: response, Verbs: r.Verbs,
				})
			}
			continue
		}
		scope := discoveryv2.ScopeCluster
		if r.Namespaced {
			scope = discoveryv2.ScopeNamespace
		}
		at[parent] = len(out)
		out = append(out, discoveryv2.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: response, Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	return out
}

// toBeta converts to the older version, which has the same fields.
func toBeta(in *discoveryv2.APIGroupDiscoveryList) runtime.Object {
	out := &discoveryv2beta1.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: in.Kind, APIVersion: "apidiscovery.k8s.io/v2beta1"},
		Items:    make([]discoveryv2beta1.APIGroupDiscovery, 0, len(in.Items)),
	}
	for _, g := range in.Items {
		item := discoveryv2beta1.APIGroupDiscovery{ObjectMeta: g.ObjectMeta}
		for _, v := range g.Versions {
			version := discoveryv2beta1.APIVersionDiscovery{Version: v.Version, Freshness: discoveryv2beta1.DiscoveryFreshness(v.Freshness)}
			for _, r := range v.Resources {
				version.Resources = append(version.Resources, betaResource(r))
			}
			item.Versions = append(item.Versions, version)
		}
		out.Items = append(out.Items, item)
	}
	return out
}

func betaResource(r discoveryv2.APIResourceDiscovery) discoveryv2beta1.APIResourceDiscovery {
	out := discoveryv2beta1.APIResourceDiscovery{
		Resource: r.Resource, ResponseKind: r.ResponseKind, Scope: discoveryv2beta1.ResourceScope(r.Scope),
		SingularResource: r.SingularResource, Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
	}
	for _, s := range r.Subresources {
		out.Subresources = append(out.Subresources, discoveryv2beta1.APISubresourceDiscovery{
			Subresource: s.Subresource, ResponseKind: s.ResponseKind, Verbs: s.Verbs,
		})
	}
	return out
}

func encode(obj runtime.Object, encoding string) ([]byte, error) {
	switch encoding {
	case typeYAML:
		return yaml.Marshal(obj)
	case typeProtobuf:
		var out bytes.Buffer
		err := protobuf.NewSerializer(nil, nil).Encode(obj, &out)
		return out.Bytes(), err
	case typeCBOR:
		var out bytes.Buffer
		err := cbor.NewSerializer(nil, nil).Encode(obj, &out)
		return out.Bytes(), err
	}
	out, err := json.Marshal(obj)
	return append(out, '\n'), err
}

// etag is the same for every encoding of a document.
func etag(obj runtime.Object) (string, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return "", fmt.Errorf("hash discovery: %w", err)
	}
	return fmt.Sprintf("\"%X\"", sha512.Sum512(body)), nil
}
