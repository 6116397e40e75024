package aggregation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/internal/resource"
)

// Client reaches what others serve from within this process, as one user; objects are unstructured. A watch cannot begin with the present objects: not every
// server does that, and one that does not know the wish ignores it. The zero value is of no use: see [Aggregator.Client].
type Client struct {
	a       *Aggregator
	dynamic *dynamic.DynamicClient
	who     user.Info
}

// Client makes a client for who: Reach, with its own type.
func (a *Aggregator) Client(who user.Info) *Client {
	c := &Client{a: a, who: who}
	config := &rest.Config{Host: "https://aggregated.invalid", QPS: -1, UserAgent: "yare"}
	var err error
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, &http.Client{Transport: c}); err != nil {
		panic(err) // the configuration above is valid
	}
	return c
}

// callTimeout bounds every call but a watch: whoever calls has other things to do.
const callTimeout = 30 * time.Second

type targetKey struct{}

// RoundTrip implements http.RoundTripper: it takes a request to the server of the group version that the request's context names.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	gv, _ := req.Context().Value(targetKey{}).(schema.GroupVersion)
	b := c.a.backend(gv)
	if b == nil {
		return nil, fmt.Errorf("nobody serves %s", gv)
	}
	out := req.Clone(req.Context())
	out.URL.Host, out.Host = b.host(), ""
	c.a.identify(out, c.who)
	answer, err := b.link.Load().requests.RoundTrip(out)
	if err != nil && req.Context().Err() == nil {
		b.signal()
	}
	return answer, err
}

// at finds the way to ref, and says why there is none.
func (c *Client) at(ctx context.Context, ref resource.Ref) (context.Context, dynamic.ResourceInterface, error) {
	gv := ref.GroupVersion()
	b := c.a.backend(gv)
	if b == nil {
		return ctx, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "", ref.GroupResource(), ref.Name, "404 page not found", 0, true)
	}
	if err := b.ready(); err != nil {
		return ctx, nil, err
	}
	ctx = context.WithValue(ctx, targetKey{}, gv)
	r := c.dynamic.Resource(ref.GroupVersionResource)
	if ref.Namespace != "" {
		return ctx, r.Namespace(ref.Namespace), nil
	}
	return ctx, r, nil
}

func parts(ref resource.Ref) []string {
	if ref.Subresource == "" {
		return nil
	}
	return []string{ref.Subresource}
}

// Get reads an object or a subresource.
func (c *Client) Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return nil, err
	}
	return object(r.Get(ctx, ref.Name, opts, parts(ref)...))
}

// List reads a collection.
func (c *Client) List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	var meta metav1.ListMeta
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return nil, meta, err
	}
	list, err := r.List(ctx, opts)
	if err != nil {
		return nil, meta, err
	}
	out := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	meta.ResourceVersion, meta.Continue, meta.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
	return out, meta, nil
}

// Watch streams changes.
func (c *Client) Watch(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("a watch of another server's objects cannot begin with those that exist: list them first")
	}
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return nil, err
	}
	return r.Watch(ctx, opts)
}

// Create adds an object, or posts to a subresource.
func (c *Client) Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, u, err := c.sending(ctx, ref, obj)
	if err != nil {
		return nil, err
	}
	if ref.Subresource != "" && u.GetName() == "" {
		u.SetName(ref.Name)
	}
	return object(r.Create(ctx, u, opts, parts(ref)...))
}

// Update replaces an object or a subresource.
func (c *Client) Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, u, err := c.sending(ctx, ref, obj)
	if err != nil {
		return nil, err
	}
	return object(r.Update(ctx, u, opts, parts(ref)...))
}

// Patch changes an object or a subresource.
func (c *Client) Patch(ctx context.Context, ref resource.Ref, typ types.PatchType, body []byte, opts metav1.PatchOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return nil, err
	}
	return object(r.Patch(ctx, ref.Name, typ, body, opts, parts(ref)...))
}

// Delete deletes an object. What the server makes of it is not known here: the object returned is nil.
func (c *Client) Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return nil, err
	}
	return nil, r.Delete(ctx, ref.Name, opts, parts(ref)...)
}

// DeleteCollection deletes what list selects.
func (c *Client) DeleteCollection(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return err
	}
	return r.DeleteCollection(ctx, opts, list)
}

func (c *Client) sending(ctx context.Context, ref resource.Ref, obj runtime.Object) (context.Context, dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	ctx, r, err := c.at(ctx, ref)
	if err != nil {
		return ctx, nil, nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return ctx, r, u.DeepCopy(), nil
	}
	body, err := json.Marshal(obj)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(body)
	}
	if err != nil {
		return ctx, nil, nil, apierrors.NewBadRequest(fmt.Sprintf("%T cannot be sent to another server: %v", obj, err))
	}
	return ctx, r, u, nil
}

// object keeps a nil pointer from becoming an object.
func object(u *unstructured.Unstructured, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return u, nil
}
