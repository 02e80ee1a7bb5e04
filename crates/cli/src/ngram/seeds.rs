//! Prompts of many kinds, for targets to answer where no file of prompts is given.
//!
//! Templates times subjects, so that a few lines make thousands; none is taken from a benchmark, or a table counted
//! from their answers would look better than it is.

/// Subjects that fit every template with `{}`.
const SUBJECTS: [&str; 96] = [
    "volcanoes",
    "the history of bread",
    "learning to swim",
    "solar panels",
    "stage fright",
    "the Silk Road",
    "houseplants",
    "black holes",
    "job interviews",
    "medieval castles",
    "sorting algorithms",
    "the human heart",
    "inflation",
    "chess openings",
    "coral reefs",
    "time management",
    "the French Revolution",
    "yoga",
    "machine learning",
    "home brewing",
    "the water cycle",
    "public speaking",
    "tectonic plates",
    "jazz music",
    "personal budgets",
    "bees",
    "the Roman army",
    "remote work",
    "vaccines",
    "photography",
    "the periodic table",
    "city parks",
    "marathon training",
    "the stock market",
    "ancient Egypt",
    "linked lists",
    "recycling",
    "childhood friendships",
    "electric cars",
    "the theory of evolution",
    "sourdough",
    "SQL databases",
    "the solar system",
    "travelling alone",
    "climate change",
    "good sleep",
    "the printing press",
    "dog training",
    "probability",
    "small businesses",
    "Renaissance painting",
    "web servers",
    "gardening in winter",
    "the brain",
    "social media",
    "earthquakes",
    "the Industrial Revolution",
    "vegetarian cooking",
    "teamwork",
    "cryptography",
    "migrating birds",
    "the American Civil War",
    "a broken bicycle",
    "antibiotics",
    "video games",
    "the Moon",
    "customer complaints",
    "poetry",
    "renewable energy",
    "Python functions",
    "stress at work",
    "rivers",
    "the Olympic Games",
    "supply and demand",
    "a lost letter",
    "photosynthesis",
    "digital privacy",
    "mountains",
    "new year resolutions",
    "the immune system",
    "film directors",
    "quantum computers",
    "a neighbour's cat",
    "democracy",
    "online courses",
    "glaciers",
    "smartphones",
    "the Great Wall",
    "meditation",
    "whales",
    "regular expressions",
    "an old lighthouse",
    "school uniforms",
    "carbon dioxide",
    "a family dinner",
    "robots",
];

/// What is asked about a subject.
const TEMPLATES: [&str; 44] = [
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "What are the most important facts about {}?",
    "Give me five tips about {}.",
    "Write an email to a colleague about {}.",
    "Why does {} matter today?",
    "Write a blog post introduction about {}.",
    "List the advantages and disadvantages of {}.",
    "Describe {} in three sentences.",
    "Pretend you are an expert on {}. What do you tell a beginner?",
    "Write a poem about {}.",
    "How has {} changed over the last hundred years?",
    "What should a student read about {}?",
    "Give a short definition of {}.",
    "Write a dialogue between two friends about {}.",
    "What are common mistakes people make about {}?",
    "Compare {} with something similar.",
    "Make a plan for a one-hour lesson about {}.",
    "Which questions would you ask a specialist about {}?",
    "Summarize what is known about {} in one paragraph.",
    "Write a product description that has to do with {}.",
    "How would you get started with {}?",
    "What is a surprising fact about {}?",
    "Write a news report about {}.",
    "Argue for and against this: everybody should know about {}.",
    "Tell me a joke about {} and explain it.",
    "What does research say about {}?",
    "Write a letter to a newspaper about {}.",
    "Name three famous people connected with {} and say why.",
    "Write a speech about {} for a school.",
    "What is the role of {} in everyday life?",
    "Describe step by step what happens in {}.",
    "Write a review of a book about {}.",
    "You are a tour guide. Introduce your guests to {}.",
    "What will people think of {} in fifty years?",
    "Give an outline of an essay about {}.",
    "Write a Python function that has to do with {} and explain it.",
    "Rewrite this more politely: I am tired of hearing about {}!",
    "Classify this remark as positive, negative or neutral: I never expected to enjoy {} so much.",
    "Translate into French: We talked about {} for two hours.",
    "Translate into English: Gestern haben wir lange über {} gesprochen.",
    "Correct the grammar: he don't knows nothing about {}.",
    "Write a short summary of a talk about {}.",
    "Create a quiz with three questions about {}, with answers.",
];

/// Arithmetic in words; `{a}`, `{b}` and `{c}` are numbers, `{who}` is a name.
const PROBLEMS: [&str; 16] = [
    "{who} has {a} apples and buys {b} more. Then {c} are eaten. How many apples are left?",
    "A train goes {a} miles an hour for {c} hours and then {b} miles more. How far does it go?",
    "{who} earns ${a} a day and spends ${b} of it. How much is saved in {c} days?",
    "A box holds {c} rows of {a} eggs. {b} eggs break. How many are whole?",
    "{who} reads {a} pages on Monday and {b} on Tuesday. The book has {c}00 pages. How many are left to read?",
    "There are {a} students in each of {c} classes, and {b} stay at home. How many come to school?",
    "A shirt costs ${a} and shoes cost ${b}. {who} buys {c} shirts and one pair of shoes. What is the total?",
    "{who} is {a} years old. In {c} years, how old will {who} be, and how old is somebody {b} years older?",
    "A farmer has {a} cows and twice as many sheep. He sells {c} sheep. How many animals does he have?",
    "A tank holds {a}0 liters and loses {c} liters an hour. How much is in it after {b} hours?",
    "{who} walks {c} kilometers every day for {a} days. How many kilometers is that, and how many meters?",
    "If {c} pens cost ${a}, how much do {b} pens cost?",
    "{who} baked {a} cookies, gave half of them away and then baked {b} more. How many cookies are there?",
    "What is {a} percent of {b}0?",
    "Solve for x: {c}x + {a} = {b}.",
    "The sides of a rectangle are {a} and {b} meters long. What are its area and its perimeter?",
];

const NAMES: [&str; 12] =
    ["Maria", "Tom", "Aisha", "Ben", "Chloe", "David", "Elena", "Frank", "Grace", "Hugo", "Iris", "Jack"];

/// Short passages, for questions about a text.
const PASSAGES: [&str; 8] = [
    "The town council voted on Tuesday to close the old bridge for repairs. Engineers had found cracks in two of its \
     five arches. Buses will take a longer way through the market until spring, and shopkeepers fear for their \
     business. The mayor said that safety comes first and promised help for those who lose money.",
    "Honey bees tell each other where food is by dancing. A bee that has found flowers returns to the hive and runs in \
     a figure of eight. The angle of the dance shows the direction compared with the sun, and its length shows the \
     distance. Other bees follow the dancer and then fly out on their own.",
    "Officials said the storm reached the coast early on Saturday with winds of 90 miles an hour. About 40,000 homes \
     lost power. Three people were hurt by falling trees, none of them seriously. Schools will stay closed on Monday \
     while crews clear the roads.",
    "The company reported a profit of 12 million dollars for the third quarter, up from 9 million a year ago. Sales of \
     its garden tools grew by a fifth, while those of kitchen appliances fell. The chief executive, who took office in \
     January, said that two new factories would open next year.",
    "The museum's new exhibition shows letters that sailors wrote home in the eighteenth century. Many were never \
     delivered, because the ships were captured. Visitors can listen to actors reading them. The curator said she was \
     moved most by a letter in which a father describes the sea to his daughter.",
    "Concrete is made of cement, water, sand and gravel. When water meets cement a chemical reaction begins that binds \
     everything together. It hardens for weeks. Making cement needs great heat and sets free carbon dioxide, so \
     researchers look for mixtures with less of it.",
    "The home team won by two goals to one after a slow first half. Its captain, back after an injury, scored in the \
     last minute. The visitors' coach complained about the referee, who had sent off a defender. The win takes the \
     club to third place with four matches to play.",
    "The library was founded in 1871 by a teacher who left it her house and 600 books. It has since moved three times. \
     Today it lends a quarter of a million books a year, and on most evenings its rooms are full of students. A part \
     of the first house still stands behind the station.",
];

/// What is asked about a passage.
const ABOUT_PASSAGES: [&str; 8] = [
    "Summarize this text: {}",
    "{}\n\nWhat is the main point of the text above?",
    "Read the following and answer in one sentence. {} Who or what is affected?",
    "{}\n\nList the facts in this text.",
    "Write a headline for this: {}",
    "{}\n\nWhat may happen next?",
    "Using only this text, explain what happened and why. {}",
    "Rewrite for children: {}",
];

/// Short questions about the world; `{}` is a subject.
const QUESTIONS: [&str; 12] = [
    "Who invented the telephone?",
    "When did people first write about {}?",
    "Where does the word for {} come from?",
    "What is the capital of Portugal?",
    "How many people work with {}?",
    "Who wrote the best known book on {}?",
    "What is the difference between weather and climate?",
    "Is {} dangerous?",
    "Which country is known for {}?",
    "How long does it take to learn about {}?",
    "What do you call a person who studies {}?",
    "What is {}?",
];

/// All prompts, kinds mixed.
pub(super) fn prompts() -> Vec<String> {
    let mut prompts = Vec::new();
    for (turn, subject) in SUBJECTS.iter().enumerate() {
        for index in 0..TEMPLATES.len() {
            // Another template first for each subject, and another subject beside each template.
            let subject = SUBJECTS[(turn * 7 + index * 5) % SUBJECTS.len()];
            prompts.push(TEMPLATES[(turn + index) % TEMPLATES.len()].replace("{}", subject));
            if index % 3 == 0 {
                prompts.push(problem(turn * TEMPLATES.len() + index));
            }
            if index % 4 == 0 {
                prompts.push(QUESTIONS[(turn + index / 4) % QUESTIONS.len()].replace("{}", subject));
            }
        }
        let passage = PASSAGES[turn % PASSAGES.len()];
        let about = ABOUT_PASSAGES[(turn / PASSAGES.len() + turn) % ABOUT_PASSAGES.len()];
        prompts.push(about.replace("{}", passage));
        prompts.push(format!(
            "Summarize: {} It had to do with {subject}.",
            PASSAGES[(turn + 3) % PASSAGES.len()]
        ));
    }
    prompts
}

fn problem(number: usize) -> String {
    let digits = |factor: usize, most: usize| (2 + number * factor % most).to_string();
    PROBLEMS[number / 3 % PROBLEMS.len()]
        .replace("{who}", NAMES[number % NAMES.len()])
        .replace("{a}", &digits(7, 37))
        .replace("{b}", &digits(11, 53))
        .replace("{c}", &digits(5, 9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_thousands_and_every_slot_is_filled() {
        let prompts = prompts();
        assert!(prompts.len() > 5_000, "{}", prompts.len());
        assert!(prompts.iter().all(|prompt| !prompt.contains(['{', '}'])));
        let different: BTreeSet<_> = prompts.iter().collect();
        assert!(different.len() > 4_000, "{} of {}", different.len(), prompts.len());
        for template in TEMPLATES {
            let begin = template.split("{}").next().unwrap();
            assert!(prompts.iter().any(|prompt| prompt.starts_with(begin)), "{template}");
        }
    }
}
