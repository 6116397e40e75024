package server

import (
	"slices"
	"strings"
	"testing"
)

func TestControllersArePicked(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  Config
		loop    string
		running bool
	}{
		{"all by default", Config{}, "deployment", true},
		{"none beside the API alone", Config{APIOnly: true}, "deployment", false},
		{"by Kubernetes' name", Config{APIOnly: true, Controllers: []string{"garbage-collector-controller"}}, "generic-garbage-collector", true},
		{"without the ending", Config{APIOnly: true, Controllers: []string{"garbage-collector"}}, "generic-garbage-collector", true},
		{"by the loop's own name", Config{APIOnly: true, Controllers: []string{"generic-garbage-collector"}}, "generic-garbage-collector", true},
		{"others are not", Config{APIOnly: true, Controllers: []string{"garbage-collector"}}, "deployment", false},
		{"all", Config{APIOnly: true, Controllers: []string{"*"}}, "deployment", true},
		{"all but one", Config{Controllers: []string{"*", "-deployment-controller"}}, "deployment", false},
		{"the others of all but one", Config{Controllers: []string{"*", "-deployment-controller"}}, "replicaset", true},
		{"naming one is not naming all", Config{Controllers: []string{"deployment"}}, "replicaset", false},
		{"one of a loop's two names", Config{APIOnly: true, Controllers: []string{"persistentvolumeclaim-protection-controller"}}, "volume-protection-controller", true},
	} {
		if got := c.config.Runs(c.loop); got != c.running {
			t.Errorf("%s: loop %s runs: %t", c.name, c.loop, got)
		}
	}
}

func TestEveryLoopHasAName(t *testing.T) {
	names := Controllers()
	for _, want := range []string{"deployment-controller", "garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "node-lifecycle-controller"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is none of %v", want, names)
		}
	}
	for _, name := range names {
		c := Config{Controllers: []string{name}}
		if err := c.checkControllers(); err != nil {
			t.Error(err)
		}
	}
	loops := loopNames()
	for loop := range controllerNames {
		if !slices.Contains(loops, loop) {
			t.Errorf("controllerNames has a loop %q that there is not", loop)
		}
	}
	c := Config{Controllers: []string{"*", "-bosun"}}
	if err := c.checkControllers(); err == nil || !strings.Contains(err.Error(), "bosun") || !strings.Contains(err.Error(), "deployment-controller") {
		t.Errorf("the error does not say what is known: %v", err)
	}
}
