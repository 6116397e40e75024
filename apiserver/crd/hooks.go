package crd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// hookTimeout bounds one call of a conversion webhook, as Kubernetes.
const hookTimeout = 30 * time.Second

// hooks calls conversion webhooks.
type hooks struct{ clients webhook.ClientManager }

func newHooks(resolve Resolver) (*hooks, error) {
	clients, err := webhook.NewClientManager([]schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, v1beta1.SchemeGroupVersion},
		v1beta1.AddToScheme, apiextensionsv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("conversion webhooks: %w", err)
	}
	anonymous, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		return nil, fmt.Errorf("conversion webhooks: %w", err)
	}
	clients.SetAuthenticationInfoResolver(anonymous)
	clients.SetServiceResolver(services{resolve})
	return &hooks{clients: clients}, clients.Validate()
}

// services finds a webhook's Service.
type services struct{ resolve Resolver }

// ResolveEndpoint implements webhook.ServiceResolver.
func (s services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if s.resolve == nil {
		return nil, errors.New("this server does not resolve Services: name the webhook by its URL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	defer cancel()
	addresses, err := s.resolve(ctx, namespace, name, port)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("service %s/%s has no endpoint", namespace, name)
	}
	return &url.URL{Scheme: "https", Host: addresses[0]}, nil
}

// converter makes a definition's converter; nil for the strategy None.
func (h *hooks) converter(d *definition) converter {
	c := d.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	hook := &hook{definition: d.Name, versions: c.Webhook.ConversionReviewVersions, client: sync.OnceValues(func() (*rest.RESTClient, error) {
		return h.clients.HookClient(clientConfig(d.Name, c.Webhook.ClientConfig))
	})}
	return hook.convert
}

func clientConfig(name string, c *apiextensionsv1.WebhookClientConfig) webhook.ClientConfig {
	out := webhook.ClientConfig{Name: "conversion_webhook_for_" + name}
	if len(bytes.TrimSpace(c.CABundle)) > 0 {
		out.CABundle = c.CABundle
	}
	if c.URL != nil {
		out.URL = *c.URL
	}
	if s := c.Service; s != nil {
		out.Service = &webhook.ClientConfigService{Name: s.Name, Namespace: s.Namespace, Port: 443}
		if s.Port != nil {
			out.Service.Port = *s.Port
		}
		if s.Path != nil {
			out.Service.Path = *s.Path
		}
	}
	return out
}

// hook is one definition's webhook.
type hook struct {
	definition string
	versions   []string
	client     func() (*rest.RESTClient, error)
}

// convert sends all objects in one review. An answer that is not what the API demands is an error, and so is a change of an object's identity.
func (h *hook) convert(objects []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	defer cancel()
	fail := func(err error) error {
		return fmt.Errorf("conversion webhook for %s failed: %w", objects[0].GroupVersionKind(), err)
	}
	client, err := h.client()
	if err != nil {
		return nil, fail(err)
	}
	r, err := newReview(h.versions, objects, to)
	if err != nil {
		return nil, fail(err)
	}
	if err := client.Post().Body(r.request).Do(ctx).Into(r.answer); err != nil {
		return nil, fail(err)
	}
	answers, err := r.objects()
	if err != nil {
		return nil, fail(err)
	}
	if len(answers) != len(objects) {
		return nil, fail(fmt.Errorf("it returned %d objects, expected %d", len(answers), len(objects)))
	}
	out := make([]*unstructured.Unstructured, len(objects))
	for i := range answers {
		if out[i], err = converted(objects[i], &answers[i], to); err != nil {
			return nil, fail(fmt.Errorf("invalid object at index %d: %w", i, err))
		}
	}
	return out, nil
}
