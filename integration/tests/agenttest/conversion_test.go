package agenttest_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestConversion takes half a minute: the API server itself tries the webhook
// again and again.
func TestConversion(t *testing.T) {
	w := newWorld(t)
	t.Run("FT-K4 INV-3 while a conversion webhook is down operations on its kind fail with the reason, and nothing is pruned", func(t *testing.T) {
		h := newWebhook(t)
		k := w.newKind("Converted", "v1", "v2")
		k.conversion = fmt.Sprintf("  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}}\n", h.URL+"/convert", h.ca())
		k.define()
		a := w.application()
		a.deploy(k.manifest("v2", "kept", "") + k.manifest("v2", "dropped", "") + configMap("beside", "red"))
		a.synced()
		h.away.Store(true)
		h.CloseClientConnections()
		op := w.ended(a.begin(strings.Replace(k.manifest("v2", "kept", ""), "size: 1", "size: 2", 1)+configMap("beside", "blue"), nil), "Error") // one is to be pruned
		if got := message(op, "Converted", "kept") + op.GetMessage(); !strings.Contains(got, "conversion webhook") {
			t.Errorf("message is %q", got)
		}
		h.away.Store(false)
		w.live(k.at("v1"), "dropped", exists)
		w.live(k.at("v1"), "kept", exists)
		w.ended(a.begin(k.manifest("v2", "kept", "")+configMap("beside", "blue"), nil), "Succeeded")
		w.waitDeleted(k.at("v1"), "dropped")
		a.synced()
	})
}
