package dynamic

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	regv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	schemarefs "k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/yare-project/yare/apiserver/policy"
	"github.com/yare-project/yare/kind"
)

// statuses writes what type checking finds into the status of validating policies, one after another and apart from requests.
type statuses struct {
	plugin *Plugin
	wake   chan struct{}
	mu     sync.Mutex
	todo   map[string]*regv1.ValidatingAdmissionPolicy
}

func newStatuses(p *Plugin) *statuses {
	return &statuses{plugin: p, wake: make(chan struct{}, 1), todo: map[string]*regv1.ValidatingAdmissionPolicy{}}
}

// add remembers a policy whose status is not about its newest generation.
func (s *statuses) add(p *regv1.ValidatingAdmissionPolicy) {
	if p.Status.ObservedGeneration == p.Generation {
		return
	}
	s.mu.Lock()
	s.todo[p.Name] = p
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *statuses) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		todo := s.todo
		s.todo = map[string]*regv1.ValidatingAdmissionPolicy{}
		s.mu.Unlock()
		for _, p := range todo {
			if err := s.check(ctx, p); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				s.plugin.cfg.Log.Error("a policy's type check was not recorded", "policy", p.Name, "error", err)
			}
		}
	}
}

var policyResource = schema.GroupResource{Group: regv1.GroupName, Resource: "validatingadmissionpolicies"}

func (s *statuses) check(ctx context.Context, p *regv1.ValidatingAdmissionPolicy) error {
	cfg := &s.plugin.cfg
	documents := documents{handler: cfg.OpenAPI, by: map[schema.GroupVersion]map[string]*spec.Schema{}}
	checker := policy.TypeChecker{Kinds: cfg.Kinds, Schema: documents.schema}
	warnings := checker.Check(p)
	_, err := cfg.Env.Change(ctx, policyResource, "", p.Name, func(obj kind.Object) error {
		now, ok := obj.(*regv1.ValidatingAdmissionPolicy)
		if ok && now.UID == p.UID && now.Generation == p.Generation {
			now.Status.ObservedGeneration = p.Generation
			now.Status.TypeChecking = &regv1.TypeChecking{ExpressionWarnings: warnings}
		}
		return nil
	})
	return err
}

// documents reads schemas from the server's own OpenAPI documents, each document once.
type documents struct {
	handler http.Handler
	by      map[schema.GroupVersion]map[string]*spec.Schema
}

// schema is a kind's schema with its references resolved; nil if there is none.
func (d *documents) schema(gvk schema.GroupVersionKind) *spec.Schema {
	schemas, read := d.by[gvk.GroupVersion()]
	if !read {
		schemas = d.read(gvk.GroupVersion())
		d.by[gvk.GroupVersion()] = schemas
	}
	const prefix = "#/components/schemas/"
	of := func(ref string) (*spec.Schema, bool) {
		s, ok := schemas[strings.TrimPrefix(ref, prefix)]
		return s, ok
	}
	for name, s := range schemas {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil || !slices.Contains(kinds, gvk) {
			continue
		}
		whole, err := schemarefs.PopulateRefs(of, name)
		if err != nil {
			return nil
		}
		return whole
	}
	return nil
}

func (d *documents) read(gv schema.GroupVersion) map[string]*spec.Schema {
	if d.handler == nil {
		return nil
	}
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	answer := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Accept", "application/json")
	d.handler.ServeHTTP(answer, request)
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &document) != nil {
		return nil
	}
	return document.Components.Schemas
}
