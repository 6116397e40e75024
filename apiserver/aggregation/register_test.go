package aggregation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func entry(name, mode string, priority int32) *apiService {
	s := &apiService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{GroupPriorityMinimum: priority}}
	if mode != "" {
		s.Labels = map[string]string{managed: mode}
	}
	return s
}

func names(in []*apiService) []string {
	var out []string
	for _, s := range in {
		out = append(out, s.Name)
	}
	return out
}

// Whose an APIService is decides the label: what is not labelled is left alone, what is built in belongs to the user once the server has started.
func TestPlanOfRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, stored         *apiService
		atStart, done          bool
		create, update, remove bool
	}{
		"built-in, absent":                       {wanted: entry("x", onStart, 1), create: true},
		"built-in, removed by somebody later":    {wanted: entry("x", onStart, 1), done: true},
		"built-in, changed before the start":     {wanted: entry("x", onStart, 1), stored: entry("x", onStart, 2), atStart: true, update: true},
		"built-in, changed later":                {wanted: entry("x", onStart, 1), stored: entry("x", onStart, 2), atStart: true, done: true},
		"built-in, somebody else's":              {wanted: entry("x", onStart, 1), stored: entry("x", "", 2), atStart: true},
		"built-in, as it should be":              {wanted: entry("x", onStart, 1), stored: entry("x", onStart, 1), atStart: true},
		"built in no more":                       {stored: entry("x", onStart, 1), atStart: true, remove: true},
		"labelled as built-in by somebody later": {stored: entry("x", onStart, 1)},
		"custom, absent":                         {wanted: entry("x", always, 1), create: true},
		"custom, removed by somebody":            {wanted: entry("x", always, 1), done: true, create: true},
		"custom, changed":                        {wanted: entry("x", always, 1), stored: entry("x", always, 2), done: true, update: true},
		"custom, somebody else's":                {wanted: entry("x", always, 1), stored: entry("x", "", 2)},
		"custom, gone":                           {stored: entry("x", always, 1), remove: true},
		"nothing of this server's":               {stored: entry("x", "", 1), atStart: true},
	} {
		r := &registration{done: map[string]bool{"x": c.done}, atStart: map[string]bool{"x": c.atStart}}
		only := func(s *apiService) map[string]*apiService {
			if s == nil {
				return nil
			}
			return map[string]*apiService{"x": s}
		}
		p := r.plan(only(c.wanted), only(c.stored))
		when := func(yes bool) []string {
			if yes {
				return []string{"x"}
			}
			return nil
		}
		if c.stored != nil && !c.remove && len(p.settle) != 1 {
			t.Errorf("%s: its status is left as it is", name)
		}
		got := [][]string{names(p.create), names(p.update), names(p.remove)}
		if diff := cmp.Diff([][]string{when(c.create), when(c.update), when(c.remove)}, got); diff != "" {
			t.Errorf("%s: create, update, remove (-want +got):\n%s", name, diff)
		}
	}
}
