// Package http is the client.Transport for loops that run away from the API server: over HTTPS through client-go.
//
// Built-in kinds travel as protobuf, Yare's own as JSON, and arrive as their Go types; every other resource travels as JSON and arrives unstructured.
// Client-side rate limits are off unless the rest.Config sets them: the server's own flow control decides.
package http

import (
	"context"
	"fmt"
	nethttp "net/http"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Transport satisfies client.Transport. It is safe for concurrent use.
type Transport struct {
	config     *rest.Config
	http       *nethttp.Client
	codecs     serializer.CodecFactory
	parameters runtime.ParameterCodec
	dynamic    dynamic.Interface

	mu      sync.Mutex
	clients map[schema.GroupVersion]rest.Interface
}

// New makes a transport for the server and user that config names. config is copied.
func New(config *rest.Config) (*Transport, error) {
	c := rest.CopyConfig(config)
	if c.QPS == 0 {
		c.QPS = -1
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client/http: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(c, h)
	if err != nil {
		return nil, fmt.Errorf("client/http: %w", err)
	}
	s := client.Scheme()
	return &Transport{config: c, http: h, dynamic: d, codecs: serializer.NewCodecFactory(s),
		parameters: runtime.NewParameterCodec(s), clients: map[schema.GroupVersion]rest.Interface{}}, nil
}

// built tells whether ref's objects have Go types.
func built(ref resource.Ref) bool {
	_, ok := client.KindFor(ref.GroupVersionResource)
	return ok
}

func (t *Transport) client(gv schema.GroupVersion) (rest.Interface, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.clients[gv]; ok {
		return c, nil
	}
	config := rest.CopyConfig(t.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = t.codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	if !hasProtobuf(gv) {
		config.ContentType = runtime.ContentTypeJSON
	}
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c, err := rest.RESTClientForConfigAndClient(config, t.http)
	if err != nil {
		return nil, fmt.Errorf("client/http: %s: %w", gv, err)
	}
	t.clients[gv] = c
	return c, nil
}

// hasProtobuf tells whether all of a version's own types have a protobuf form. Yare's kinds have none.
func hasProtobuf(gv schema.GroupVersion) bool {
	for _, t := range client.Scheme().KnownTypes(gv) {
		if _, ok := reflect.New(t).Interface().(interface {
			MarshalToSizedBuffer([]byte) (int, error)
		}); !ok && t.PkgPath() != reflect.TypeFor[metav1.ObjectMeta]().PkgPath() {
			return false
		}
	}
	return true
}

// request addresses ref with a verb of HTTP.
func (t *Transport) request(verb string, ref resource.Ref) (*rest.Request, error) {
	c, err := t.client(ref.GroupVersion())
	if err != nil {
		return nil, err
	}
	r := c.Verb(verb).NamespaceIfScoped(ref.Namespace, ref.Namespace != "").Resource(ref.Resource)
	if ref.Name != "" {
		r = r.Name(ref.Name)
	}
	if ref.Subresource != "" {
		r = r.SubResource(ref.Subresource)
	}
	return r, nil
}

func (t *Transport) other(ref resource.Ref) dynamic.ResourceInterface {
	r := t.dynamic.Resource(ref.GroupVersionResource)
	if ref.Namespace != "" {
		return r.Namespace(ref.Namespace)
	}
	return r
}

func subs(ref resource.Ref) []string {
	if ref.Subresource == "" {
		return nil
	}
	return []string{ref.Subresource}
}

// result hides a nil *unstructured inside an interface.
func result(u *unstructured.Unstructured, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return u, nil
}

// Get reads one object.
func (t *Transport) Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error) {
	if !built(ref) {
		return result(t.other(ref).Get(ctx, ref.Name, opts, subs(ref)...))
	}
	r, err := t.request("GET", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).Do(ctx).Get()
}

// List reads one page of a collection.
func (t *Transport) List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	list, err := t.list(ctx, ref, opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, metav1.ListMeta{}, fmt.Errorf("client/http: list %s: %w", ref.Resource, err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, metav1.ListMeta{}, fmt.Errorf("client/http: list %s: %w", ref.Resource, err)
	}
	return objects, metav1.ListMeta{ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(),
		RemainingItemCount: of.GetRemainingItemCount()}, nil
}

func (t *Transport) list(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (runtime.Object, error) {
	if !built(ref) {
		return t.other(ref).List(ctx, opts)
	}
	r, err := t.request("GET", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).Do(ctx).Get()
}

// Watch streams a collection's changes.
func (t *Transport) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	if !built(ref) {
		return t.other(ref).Watch(ctx, opts)
	}
	r, err := t.request("GET", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).Watch(ctx)
}

// Create makes an object, or posts to a subresource.
func (t *Transport) Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	if !built(ref) {
		u, err := unstructuredOf(obj)
		if err != nil {
			return nil, err
		}
		if ref.Subresource != "" {
			u.SetName(ref.Name)
		}
		return result(t.other(ref).Create(ctx, u, opts, subs(ref)...))
	}
	if ref.Subresource == "" {
		ref.Name = "" // a POST goes to the collection
	}
	r, err := t.request("POST", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).Body(obj).Do(ctx).Get()
}

// Update replaces an object or one of its subresources.
func (t *Transport) Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error) {
	if !built(ref) {
		u, err := unstructuredOf(obj)
		if err != nil {
			return nil, err
		}
		return result(t.other(ref).Update(ctx, u, opts, subs(ref)...))
	}
	r, err := t.request("PUT", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).Body(obj).Do(ctx).Get()
}

// Patch applies a patch to an object or one of its subresources.
func (t *Transport) Patch(ctx context.Context, ref resource.Ref, kind types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error) {
	if !built(ref) {
		return result(t.other(ref).Patch(ctx, ref.Name, kind, body, opts, subs(ref)...))
	}
	r, err := t.request("PATCH", ref)
	if err != nil {
		return nil, err
	}
	return r.VersionedParams(&opts, t.parameters).SetHeader("Content-Type", string(kind)).Body(body).Do(ctx).Get()
}

// Delete deletes one object. The answer is nil for resources without Go types.
func (t *Transport) Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error) {
	if !built(ref) {
		return nil, t.other(ref).Delete(ctx, ref.Name, opts, subs(ref)...)
	}
	r, err := t.request("DELETE", ref)
	if err != nil {
		return nil, err
	}
	return r.Body(&opts).Do(ctx).Get()
}

// DeleteCollection deletes what the list options select.
func (t *Transport) DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	if !built(ref) {
		return t.other(ref).DeleteCollection(ctx, opts, list)
	}
	r, err := t.request("DELETE", ref)
	if err != nil {
		return err
	}
	return r.VersionedParams(&list, t.parameters).Body(&opts).Do(ctx).Error()
}

func unstructuredOf(obj runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("client/http: %T: %w", obj, err)
	}
	return &unstructured.Unstructured{Object: m}, nil
}
