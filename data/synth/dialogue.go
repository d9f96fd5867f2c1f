package synth

import (
	"fmt"
	"strings"
)

// scenario is the frame of a dialogue: beats that follow one another, and
// summaries of them. Lines begin with "1:" or "2:" for the speaker. Slots are
// filled alike in lines, summaries and topic.
type scenario struct {
	topic     string
	slots     map[string][]string
	beats     []beat
	summaries []string // at least three
}

// beat is one step of a dialogue: one of its variants is spoken, or none when it
// may be left out. A variant's lines are separated by "|".
type beat struct {
	optional bool
	variants []string
}

// must is a beat that is always spoken, may one that is sometimes left out.
func must(variants ...string) beat { return beat{variants: variants} }
func may(variants ...string) beat  { return beat{optional: true, variants: variants} }

type dialogueJSON struct {
	Name     string `json:"fname"`
	Dialogue string `json:"dialogue"`
	Summary  string `json:"summary,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Summary1 string `json:"summary1,omitempty"`
	Topic1   string `json:"topic1,omitempty"`
	Summary2 string `json:"summary2,omitempty"`
	Topic2   string `json:"topic2,omitempty"`
	Summary3 string `json:"summary3,omitempty"`
	Topic3   string `json:"topic3,omitempty"`
}

func dialogueRecord(r *rng, split Split, i int) dialogueJSON {
	list := trainScenarios
	if split == HeldOut {
		list = heldOutScenarios
	}
	s := pick(r, list)
	slots := map[string]string{
		"name1": r.value("first"), "name2": r.value("last"),
		"day": r.value("weekday"), "city": r.value("city"), "month": r.value("month"),
		"hour": fmt.Sprint(r.between(1, 12, 1)), "people": pick(r, []string{"two", "three", "four", "five", "six"}),
		"price": fmt.Sprint(r.between(15, 400, 5)), "minutes": fmt.Sprint(r.between(10, 90, 5)),
		"color": r.value("color"), "sport": r.value("sport"), "subject": r.value("subject"),
	}
	for _, k := range sortedKeys(s.slots) {
		slots[k] = pick(r, s.slots[k])
	}
	var lines []string
	speaker := ""
	for _, b := range s.beats {
		if b.optional && r.chance(0.4) {
			continue
		}
		for line := range strings.SplitSeq(pick(r, b.variants), "|") {
			who, text, _ := strings.Cut(line, ": ")
			said := sentence(fill(text, slots))
			if who == speaker { // beats meet: one turn
				lines[len(lines)-1] += " " + said
				continue
			}
			speaker = who
			lines = append(lines, "#Person"+who+"#: "+said)
		}
	}
	all := shuffled(r, s.summaries)
	for k := range all {
		all[k] = sentence(fill(all[k], slots))
	}
	d := dialogueJSON{Dialogue: strings.Join(lines, "\n")}
	topic := fill(s.topic, slots)
	if split == HeldOut {
		d.Name = fmt.Sprintf("test_%d", i)
		d.Summary1, d.Summary2, d.Summary3 = all[0], all[1], all[2]
		d.Topic1, d.Topic2, d.Topic3 = topic, topic, topic
	} else {
		d.Name = fmt.Sprintf("train_%d", i)
		d.Summary, d.Topic = all[0], topic
	}
	return d
}

var trainScenarios = []scenario{
	{
		topic: "book a table",
		slots: map[string][]string{"place": {"by the window", "on the terrace", "near the fireplace", "in the garden"}, "dish": {"vegetarian dishes", "gluten-free food", "a children's menu", "fresh seafood"}},
		beats: []beat{
			must("1: Good evening, how may I help you?|2: Hello, I'd like to book a table for {people} on {day}.", "1: Hello, this is the Rose Garden restaurant.|2: Hi. Do you have a table for {people} on {day}?"),
			must("1: Certainly. What time would suit you?|2: Around {hour} o'clock, please.", "1: Let me check. At what time?|2: {hour} o'clock would be perfect."),
			may("2: Could we sit {place}?|1: Of course, I will note that.", "2: We would like to sit {place}.|1: That table is free, so no problem."),
			may("2: Do you serve {dish}?|1: Yes, we have quite a few to choose from."),
			must("1: May I have your name, please?|2: It's {name1} {name2}.", "1: What name shall I put it under?|2: {name2}, please."),
			must("1: Thank you. We look forward to seeing you on {day}.", "1: All done. See you on {day} at {hour}."),
		},
		summaries: []string{
			"#Person2# books a table for {people} on {day} at {hour} o'clock under the name {name2}.",
			"#Person2# calls #Person1# to reserve a table for {people} people on {day} at {hour}.",
			"#Person1# takes a reservation from {name2} for {people} on {day} around {hour} o'clock.",
		},
	},
	{
		topic: "see a doctor",
		slots: map[string][]string{"pain": {"a sore throat", "a bad cough", "a headache", "back pain", "a stomach ache"}, "since": {"since yesterday", "for three days", "for about a week", "since the weekend"}, "advice": {"drink a lot of water", "stay in bed", "avoid cold drinks", "take some rest"}, "pill": {"twice a day", "after every meal", "before going to bed"}},
		beats: []beat{
			must("1: What seems to be the problem?|2: I've had {pain} {since}, doctor.", "1: Good morning. How are you feeling?|2: Not well. I've had {pain} {since}."),
			may("1: Do you have a fever?|2: A slight one, I think.", "1: Have you taken anything for it?|2: No, nothing so far."),
			may("1: Let me have a look. Please breathe in deeply.|2: All right."),
			must("1: It's nothing serious. I'll give you some medicine. Take it {pill}.|2: {pill}. I see.", "1: You should take this medicine {pill}.|2: I will."),
			must("1: And {advice}.|2: Thank you, doctor.", "1: You also need to {advice}.|2: I'll do that. Thank you very much."),
			may("1: Come back on {day} if it doesn't get better."),
		},
		summaries: []string{
			"#Person2# has had {pain} {since}. #Person1# tells #Person2# to take medicine {pill} and to {advice}.",
			"#Person2# sees the doctor because of {pain}. #Person1# prescribes medicine and advises #Person2# to {advice}.",
			"#Person1# examines #Person2#, who has had {pain} {since}, and gives #Person2# some medicine.",
		},
	},
	{
		topic: "job interview",
		slots: map[string][]string{"job": {"sales manager", "accountant", "web designer", "lab assistant", "editor"}, "years": {"two", "three", "five", "seven", "ten"}, "strength": {"I work well in a team", "I learn quickly", "I am very organized", "I stay calm under pressure"}, "why": {"I want a new challenge", "my old office moved away", "I would like to work with young people", "I admire your products"}},
		beats: []beat{
			must("1: Please have a seat. You are applying for the position of {job}, right?|2: Yes, that's right.", "1: Welcome. So you want to be our new {job}.|2: Yes, I do."),
			must("1: How much experience do you have?|2: I have worked as a {job} for {years} years.", "1: Have you done this work before?|2: Yes, for {years} years at a company in {city}."),
			must("1: Why do you want to work here?|2: Because {why}.", "1: What made you apply?|2: {why}."),
			may("1: What is your greatest strength?|2: I'd say that {strength}."),
			may("1: What salary do you expect?|2: I'd rather talk about that later, if I may."),
			must("1: Very good. We'll let you know by {day}.|2: Thank you for your time.", "1: Thank you. You will hear from us on {day}.|2: I look forward to it."),
		},
		summaries: []string{
			"#Person1# interviews #Person2# for the position of {job}. #Person2# has {years} years of experience. #Person1# will reply on {day}.",
			"#Person2# applies for the position of {job} and tells #Person1# about {years} years of experience.",
			"#Person2# has an interview for a job as {job}. #Person1# asks about #Person2#'s experience and will decide by {day}.",
		},
	},
	{
		topic: "lost item",
		slots: map[string][]string{"item": {"umbrella", "wallet", "backpack", "phone", "scarf"}, "where": {"on the train", "in the library", "at the cafe", "in the gym", "on the bus"}, "mark": {"my name inside", "a small star on it", "a scratch on one side", "a key ring attached"}},
		beats: []beat{
			must("2: Excuse me, did anyone hand in a {color} {item}?|1: When did you lose it?", "2: Hello, I think I left my {color} {item} {where}.|1: I'm sorry to hear that. When was it?"),
			must("2: It was {day} around {hour} o'clock. I left it {where}.|1: Let me look.", "2: On {day}, {where}.|1: One moment, I will check."),
			must("1: Is there anything special about it?|2: Yes, it has {mark}.", "1: Can you describe it?|2: It is {color} and has {mark}."),
			must("1: Here it is. Is this yours?|2: Yes! Thank you so much.", "1: I'm afraid nobody has brought it in. Leave me your number.|2: It's under {name1} {name2}. Thank you."),
		},
		summaries: []string{
			"#Person2# lost a {color} {item} {where} and asks #Person1# for help.",
			"#Person2# asks #Person1# about a {color} {item} that was left {where} on {day}.",
			"#Person1# helps #Person2# look for a {color} {item}, which has {mark}.",
		},
	},
	{
		topic: "hotel check-in",
		slots: map[string][]string{"room": {"a single room", "a double room", "a room with a sea view", "a quiet room"}, "extra": {"breakfast", "parking", "the swimming pool", "the wireless network"}, "nights": {"two", "three", "four", "five"}},
		beats: []beat{
			must("1: Welcome to the hotel. Do you have a reservation?|2: Yes, under the name {name2}.", "2: Good evening. I booked {room} under {name2}.|1: Let me see."),
			must("1: I see, {room} for {nights} nights.|2: That's correct.", "1: Here it is. You stay for {nights} nights, in {room}.|2: Right."),
			may("2: Is {extra} included?|1: Yes, {extra} is included in the price.", "2: Does the price include {extra}?|1: It does."),
			must("1: May I see your passport, please?|2: Here you are.", "1: Please fill in this form.|2: Sure."),
			must("1: Your room is on floor {hour}. Enjoy your stay.|2: Thank you.", "1: Here is your key. Breakfast is until {hour} o'clock.|2: Great, thanks."),
		},
		summaries: []string{
			"#Person2# checks in at the hotel. #Person2# has booked {room} for {nights} nights.",
			"#Person1# checks in {name2}, who stays in {room} for {nights} nights.",
			"{name2} arrives at the hotel and #Person1# gives #Person2# {room}.",
		},
	},
	{
		topic: "return a purchase",
		slots: map[string][]string{"thing": {"sweater", "jacket", "pair of shoes", "kettle", "lamp"}, "fault": {"it is too small", "it has a hole", "it doesn't work", "the color is wrong"}, "want": {"my money back", "a new one", "a different size", "a voucher"}},
		beats: []beat{
			must("2: Hello. I bought this {thing} last {day}, but {fault}.|1: I'm sorry about that.", "2: I'd like to return this {thing}. I'm afraid {fault}.|1: Oh, I see."),
			must("1: Do you have the receipt?|2: Yes, here it is. I paid {price} dollars.", "1: How much did you pay?|2: {price} dollars. Here's the receipt."),
			must("1: What would you like us to do?|2: I'd like {want}.", "1: Would you like to exchange it?|2: I would rather have {want}."),
			must("1: That's no problem.|2: Thank you for your help.", "1: Let me ask the manager.|2: Sure, I can wait.|1: It's fine. You will get {want}."),
		},
		summaries: []string{
			"#Person2# returns a {thing} because {fault} and wants {want}.",
			"#Person2# bought a {thing} for {price} dollars, but {fault}. #Person1# agrees to help.",
			"#Person1# helps #Person2# return a {thing}. #Person2# asks for {want}.",
		},
	},
	{
		topic: "weekend plans",
		slots: map[string][]string{"plan": {"go hiking", "visit the museum", "see a play", "have a picnic", "go to the beach"}, "bring": {"some sandwiches", "a camera", "my sister", "a map", "drinks"}, "meet": {"at the station", "in front of the library", "at my place", "by the fountain"}},
		beats: []beat{
			must("1: Do you have any plans for {day}?|2: Not yet. Why?", "1: What are you doing on {day}, {name1}?|2: Nothing special so far."),
			must("1: Some friends and I want to {plan}. Would you like to come?|2: I'd love to!", "1: How about we {plan}?|2: Sounds great."),
			may("2: What if it rains?|1: Then we can watch a movie at home instead."),
			may("2: Shall I bring {bring}?|1: Yes, that would be nice.", "2: I'll bring {bring}.|1: Perfect."),
			must("1: Let's meet {meet} at {hour}.|2: Okay, see you then.", "2: Where shall we meet?|1: At {hour} o'clock {meet}."),
		},
		summaries: []string{
			"#Person1# invites #Person2# to {plan} on {day}. They will meet {meet} at {hour}.",
			"#Person1# and #Person2# decide to {plan} on {day} and to meet {meet}.",
			"#Person2# agrees to {plan} with #Person1# and friends on {day}.",
		},
	},
	{
		topic: "rent an apartment",
		slots: map[string][]string{"near": {"the university", "the subway", "the city center", "a park"}, "has": {"a balcony", "a new kitchen", "a washing machine", "two bedrooms"}, "worry": {"noisy", "cold in winter", "far from the shops"}},
		beats: []beat{
			must("2: I'm calling about the apartment near {near}. Is it still free?|1: Yes, it is.", "2: Hello, is the apartment near {near} still for rent?|1: It is, luckily."),
			must("2: How much is the rent?|1: {price} dollars a week.", "1: The rent is {price} dollars a week.|2: That is all right for me."),
			may("2: Does it have {has}?|1: Yes, it has {has}."),
			may("2: Is it {worry}?|1: Not at all."),
			must("2: When can I see it?|1: How about {day} at {hour}?|2: Fine.", "1: Would you like to see it on {day}?|2: Yes, {hour} o'clock would be good."),
		},
		summaries: []string{
			"#Person2# asks #Person1# about an apartment near {near}, which costs {price} dollars a week. They will meet on {day}.",
			"#Person2# wants to rent an apartment near {near} and will see it on {day} at {hour}.",
			"#Person1# tells #Person2# that the apartment near {near} is free and costs {price} dollars a week.",
		},
	},
	{
		topic: "computer trouble",
		slots: map[string][]string{"trouble": {"my computer keeps freezing", "I can't open my files", "the printer doesn't print", "the screen stays black"}, "try": {"restart it", "check the cable", "install the update", "free some space"}, "result": {"It works now", "Now I see an error message", "Nothing has changed"}},
		beats: []beat{
			must("2: Can you help me? {trouble}.|1: When did it start?", "1: Help desk, what can I do for you?|2: I have a problem: {trouble}."),
			may("2: It began on {day}, after lunch.|1: I see.", "1: Did you install anything new?|2: Not that I know of."),
			must("1: Please {try} first.|2: Okay, just a second.", "1: Have you tried to {try}?|2: No. Let me do it."),
			must("2: {result}.|1: Good to know. Call me again if you need me.", "2: {result}.|1: All right, I will come and have a look at {hour}."),
		},
		summaries: []string{
			"#Person2# tells #Person1# that there is a computer problem. #Person1# suggests to {try}.",
			"#Person2# asks #Person1# for help with a computer. #Person1# tells #Person2# to {try}.",
			"#Person1# from the help desk advises #Person2# to {try}.",
		},
	},
	{
		topic: "school project",
		slots: map[string][]string{"part": {"the drawings", "the introduction", "the slides", "the interviews"}, "other": {"the research", "the last chapter", "the poster", "the experiment"}, "due": {"next week", "on Friday", "at the end of the month"}},
		beats: []beat{
			must("1: Have you started on the {subject} project?|2: Not really. When is it due?|1: It's due {due}.", "1: Our {subject} project is due {due}.|2: Already? We had better hurry."),
			must("1: I could do {part}.|2: Then I'll take {other}.", "2: Who does what?|1: You do {other} and I do {part}."),
			may("2: Shall we ask {name1} to join us?|1: Good idea, {name1} is good at {subject}."),
			must("1: Let's meet on {day} after class.|2: Okay, in the library.", "2: When shall we meet?|1: On {day} at {hour}."),
		},
		summaries: []string{
			"#Person1# and #Person2# plan their {subject} project. #Person1# does {part} and #Person2# does {other}.",
			"#Person1# and #Person2# share the work on a {subject} project, which is due {due}.",
			"The {subject} project is due {due}, so #Person1# and #Person2# will meet on {day}.",
		},
	},
	{
		topic: "ask the way",
		slots: map[string][]string{"goal": {"the post office", "the museum", "the train station", "the hospital", "the theater"}, "turn": {"turn left at the bank", "turn right at the traffic lights", "go straight past the church", "cross the bridge"}, "how": {"on foot", "by bus", "by bike"}},
		beats: []beat{
			must("2: Excuse me, how do I get to {goal}?|1: It isn't far.", "2: Sorry, I am looking for {goal}.|1: Oh, you are going the wrong way."),
			must("1: Walk down this street and {turn}.|2: {turn}. Got it.", "1: First {turn}. Then you will see it.|2: All right."),
			must("2: How long does it take?|1: About {minutes} minutes {how}.", "2: Can I go {how}?|1: Yes, it takes {minutes} minutes."),
			must("2: Thanks a lot.|1: You're welcome.", "2: Thank you for your help.|1: No problem. Have a nice day."),
		},
		summaries: []string{
			"#Person2# asks #Person1# the way to {goal}. It takes {minutes} minutes {how}.",
			"#Person1# tells #Person2# how to get to {goal}.",
			"#Person2# is looking for {goal}. #Person1# tells #Person2# to {turn}.",
		},
	},
	{
		topic: "birthday present",
		slots: map[string][]string{"gift": {"a cookbook", "a concert ticket", "a watch", "flowers", "a board game"}, "no": {"too expensive", "too boring", "a bit old-fashioned"}},
		beats: []beat{
			must("1: It's {name1}'s birthday on {day}. What shall we buy?|2: How about {gift}?", "2: Do you have a present for {name1} yet?|1: No, the birthday is on {day}, isn't it?|2: Yes. Maybe {gift}?"),
			may("1: Isn't that {no}?|2: No, I think {name1} would love it."),
			must("1: How much is it?|2: About {price} dollars. We can share it.", "2: It costs {price} dollars.|1: Then let us share the cost."),
			must("1: Good. I'll get it tomorrow.|2: Wonderful.", "2: I'll buy it on the way home.|1: Thank you!"),
		},
		summaries: []string{
			"#Person1# and #Person2# decide to buy {gift} for {name1}'s birthday and share the cost.",
			"It's {name1}'s birthday on {day}. #Person1# and #Person2# will give {name1} {gift}.",
			"#Person2# suggests {gift} as a present for {name1}, and #Person1# agrees.",
		},
	},
}

var heldOutScenarios = []scenario{
	{
		topic: "join a club",
		slots: map[string][]string{"skill": {"a beginner", "quite good", "out of practice"}, "gear": {"shoes", "a membership card", "a towel", "sports clothes"}},
		beats: []beat{
			must("2: Hi, I would like to join the {sport} club.|1: Great. Have you played before?", "2: Is this where I can sign up for {sport}?|1: Yes, it is. Have you done it before?"),
			must("2: I am {skill}.|1: That's fine, everybody is welcome.", "2: A little, but I'm {skill}.|1: Don't worry about that."),
			must("1: We meet every {day} at {hour}.|2: That suits me.", "2: When do you train?|1: On {day}, from {hour} o'clock."),
			may("2: What do I need?|1: Only {gear}."),
			must("1: It costs {price} dollars a year.|2: Okay, here is the money.", "2: How much is it?|1: {price} dollars for a year."),
		},
		summaries: []string{
			"#Person2# joins the {sport} club, which meets every {day} at {hour} and costs {price} dollars a year.",
			"#Person2# wants to join the {sport} club and #Person1# tells #Person2# when it meets.",
			"#Person1# tells #Person2# about the {sport} club. It costs {price} dollars a year.",
		},
	},
	{
		topic: "repair a car",
		slots: map[string][]string{"noise": {"a strange noise", "a warning light", "an oil leak", "a flat tire"}, "part": {"the brakes", "the battery", "the engine", "the cooler"}},
		beats: []beat{
			must("2: Could you look at my {color} car? There is {noise}.|1: Since when?|2: Since {day}.", "1: What's wrong with your car?|2: It has {noise}."),
			must("1: I think it's {part}.|2: Is that serious?", "1: We will have to repair {part}.|2: Oh no."),
			must("2: How much will it cost?|1: About {price} dollars.", "1: That will be {price} dollars.|2: I see. It can't be helped."),
			must("1: You can fetch it on {day} at {hour}.|2: Fine, thanks.", "2: When will it be ready?|1: On {day}."),
		},
		summaries: []string{
			"#Person2# brings a car with {noise} to #Person1#. The repair of {part} costs {price} dollars.",
			"#Person1# tells #Person2# that {part} must be repaired for about {price} dollars.",
			"#Person2#'s car has {noise}. #Person1# will repair it by {day}.",
		},
	},
	{
		topic: "library card",
		slots: map[string][]string{"paper": {"a passport", "a student card", "a letter with my address"}, "count": {"three", "five", "eight"}},
		beats: []beat{
			must("2: I'd like to get a library card.|1: Do you live in {city}?|2: Yes, I do.", "2: Hello. How can I get a library card?|1: Are you a student?|2: Yes, here in {city}."),
			must("1: I need to see some identification.|2: I have {paper}.", "2: Here is {paper}.|1: Thank you, that is enough."),
			must("2: How many books may I borrow?|1: You can take {count} books for {people} weeks.", "1: With this card you can borrow {count} books for {people} weeks.|2: That's great."),
			may("2: And if I'm late?|1: Then there is a small fine."),
			must("1: Here is your card.|2: Thank you very much."),
		},
		summaries: []string{
			"#Person2# gets a library card and can borrow {count} books for {people} weeks.",
			"#Person1# gives #Person2# a library card and explains that {count} books can be borrowed.",
			"#Person2# applies for a library card in {city} and shows #Person1# {paper}.",
		},
	},
}
