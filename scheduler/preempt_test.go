package scheduler_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/client"
	apiref "github.com/yare-project/yare/internal/resource"
)

// end removes a pod that is being deleted, as its node does once its containers have ended.
func (c *cluster) end(name string) {
	c.t.Helper()
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) deletes(name string) (n int) {
	for _, a := range c.server.Actions(false) {
		if a.Verb == "delete" && a.Ref.Name == name {
			n++
		}
	}
	return n
}

func TestVictimThatLeavesAlreadyIsLeftAlone(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "1", priority(1)))
	c.wait("low is placed", func() bool { return c.nodeOf("low") == "a" })
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "low", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wait("low is leaving", func() bool { return c.pod("low").DeletionTimestamp != nil })
	c.server.MustCreate(pod("high", "1", priority(9)))
	c.wait("high waits for the room", func() bool { return c.pod("high").Status.NominatedNodeName == "a" })
	if got := c.deletes("low"); got != 1 {
		t.Errorf("low was deleted %d times", got)
	}
	c.end("low")
	c.wait("high has the room", func() bool { return c.nodeOf("high") == "a" })
}

func TestPreemptionThatFailsIsTriedAgain(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "1", priority(1)))
	c.wait("low is placed", func() bool { return c.nodeOf("low") == "a" })
	var refused atomic.Int32
	c.server.FailWith(func(verb string, ref apiref.Ref, _ runtime.Object) error {
		if verb == "delete" && ref.Name == "low" && refused.Add(1) == 1 {
			return errors.New("not now")
		}
		return nil
	})
	c.server.MustCreate(pod("high", "1", priority(9)))
	c.poll("low has to leave all the same", time.Second, func() bool { return c.pod("low").DeletionTimestamp != nil })
	if refused.Load() < 2 {
		t.Error("nothing failed")
	}
}
