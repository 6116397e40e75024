package fairness

// maxHand is the largest hand: sixty bits of entropy deal no more cards than this from a deck that holds as many (validation sees to it).
const maxHand = 15

// deal picks len(hand) different queues out of queues, by chance, but always the same for the same hash: two flows rarely have all in common
// (shuffle sharding). Each card takes its part of the hash as the digits of a number whose bases are the cards that are left.
func deal(hash uint64, queues int, hand []int) []int {
	hash >>= 4 // sixty bits
	for i := range hand {
		left := uint64(queues - i)
		card := int(hash % left)
		hash /= left
		// card counts among those that are left: step over the ones that were dealt, in ascending order.
		at := 0
		for ; at < i && hand[at] <= card; at++ {
			card++
		}
		copy(hand[at+1:i+1], hand[at:i])
		hand[at] = card
	}
	return hand
}
