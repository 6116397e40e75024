package controllers_test

import (
	"context"
	"slices"
	"testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/controllers"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/loop"
)

// Every loop must be accepted by the runtime: names are unique, and nothing is cached that is not declared.
func TestAllLoopsCanBeAdded(t *testing.T) {
	server := fake.New(nil)
	r, err := loop.New(loop.Config{Transport: func(string) client.Transport { return server }, Caches: client.NewCaches(client.CachesConfig{Transport: server})})
	if err != nil {
		t.Fatal(err)
	}
	all := controllers.All(controllers.Config{CA: []byte("PEM"), Served: func(context.Context) ([]served.Resource, error) { return nil, nil }})
	for _, d := range all {
		if err := r.Add(d); err != nil {
			t.Error(err)
		}
	}
	roles, bindings := r.Roles()
	if len(roles) != len(all) || len(bindings) != len(all) {
		t.Errorf("%d roles and %d bindings for %d loops", len(roles), len(bindings), len(all))
	}
	for _, role := range roles {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "*") {
				t.Errorf("%s may do anything to %v", role.Name, rule.Resources)
			}
		}
	}
}
