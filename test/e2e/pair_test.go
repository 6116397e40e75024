package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTwoClusters: two clusters on one machine do not see each other, and one that goes takes nothing of the other's.
func TestTwoClusters(t *testing.T) {
	one, two := newClusterAt(t, 17), newClusterAt(t, 19)
	defer one.remove()
	defer two.remove()
	addresses := map[*cluster]string{}
	for _, c := range []*cluster{one, two} {
		c.up()
		c.box("web", "mkdir /tmp/w; echo from "+c.dir+" >/tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w", "--port=8080", "--labels=app=web")
		c.kubectl("expose", "pod", "web", "--name=front", "--port=80", "--target-port=8080")
		addresses[c] = "http://" + strings.TrimSpace(c.kubectl("get", "service", "front", "-o", "jsonpath={.spec.clusterIP}")) + "/"
		c.answers(addresses[c])
	}
	if addresses[one] == addresses[two] {
		t.Fatalf("both Services have %s", addresses[one])
	}
	one.answers(addresses[one])
	container, before := one.container("web"), one.traces()

	two.down()
	if left := two.traces(); len(left) > 0 {
		t.Errorf("the second cluster leaves behind:\n%s", strings.Join(left, "\n"))
	}
	one.answers(addresses[one])
	one.contains("a name", one.kubectl("exec", "web", "--", "wget", "-q", "-O", "-", "http://front/"), "from "+one.dir)
	if after := one.container("web"); after != container {
		t.Errorf("the first cluster's pod is %s, was %s", after, container)
	}
	if diff := cmp.Diff(before, one.traces()); diff != "" {
		t.Errorf("what the first cluster has on the machine (-before +after):\n%s", diff)
	}
	one.box("late", "sleep 86396")
}

// answers checks that a Service answers from the host and from a pod.
func (c *cluster) answers(url string) {
	c.t.Helper()
	c.until("the Service answers", func() error { return wants(get(url), "from "+c.dir) })
	c.contains("the Service from a pod", c.kubectl("exec", "web", "--", "wget", "-q", "-O", "-", url), "from "+c.dir)
}
