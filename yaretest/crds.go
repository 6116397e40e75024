package yaretest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// install brings in what the options name.
func (s *Server) install(ctx context.Context, o *settings) error {
	if o.hooks {
		if err := s.hooks.prepare(s, o); err != nil {
			return err
		}
		if err := s.installWebhooks(ctx, o.hookPaths); err != nil {
			return err
		}
	}
	crds, err := o.definitions()
	if err != nil {
		return err
	}
	if o.hooks {
		for _, crd := range crds {
			s.hooks.convert(crd, slices.Contains(o.convertible, crd.Name))
		}
	}
	return s.installCRDs(ctx, crds)
}

// definitions are the custom resources of the options, each once: the last one of a name counts.
func (o *settings) definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	manifests, err := read(o.crdPaths)
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	add := func(crd *apiextensionsv1.CustomResourceDefinition) {
		out = slices.DeleteFunc(out, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == crd.Name })
		out = append(out, crd)
	}
	for _, m := range manifests {
		if m.Kind != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := m.decode(crd); err != nil {
			return nil, err
		}
		crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{} // some generators write an empty one
		add(crd)
	}
	for _, crd := range o.crds {
		add(crd.DeepCopy())
	}
	for _, name := range o.convertible {
		if !slices.ContainsFunc(out, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == name }) {
			return nil, fmt.Errorf("Convertible(%q): no such custom resource is installed", name)
		}
	}
	return out, nil
}

// installCRDs creates definitions and returns when all of them are served.
func (s *Server) installCRDs(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) error {
	if len(crds) == 0 {
		return nil
	}
	api := s.cluster.Local()
	waiting := map[string]bool{}
	for _, crd := range crds {
		if _, err := client.Of[*apiextensionsv1.CustomResourceDefinition](api).Create(ctx, crd); err != nil {
			return fmt.Errorf("custom resource %s: %w", crd.Name, err)
		}
		waiting[crd.Name] = true
	}
	watch, err := api.Watch(ctx, resource.Ref{GroupVersionResource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")},
		metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("custom resources are not served in time: %w", ctx.Err())
		case event, open := <-watch.ResultChan():
			if !open {
				return errors.New("the watch of custom resources ended before they were served")
			}
			if status, bad := event.Object.(*metav1.Status); bad {
				return apierrors.FromObject(status)
			}
			if crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition); ok && waiting[crd.Name] {
				served, err := established(crd)
				if err != nil {
					return err
				}
				if served {
					delete(waiting, crd.Name)
				}
			}
		}
	}
	return nil
}

// established tells whether a definition is served; one whose names are refused never will be.
func established(crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return false, fmt.Errorf("custom resource %s: %s: %s", crd.Name, c.Reason, c.Message)
		}
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			return true, nil
		}
	}
	return false, nil
}
